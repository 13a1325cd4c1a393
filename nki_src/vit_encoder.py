"""Several pre-norm Transformer encoder blocks in one launch: `vit_block` after `vit_block`, to the
bit, without the launches and the HBM round trips in between.

Between two blocks the rows of x stay on the chip in the dtype of x while they fit (encoder.py has
how), weights stream. Two programs (LNC 2) that share one image exchange its rows through HBM
between blocks. SBUF: as `vit_block`.
"""

import nki

from .encoder import encode
from .parameters import Options


@nki.jit
def vit_encoder(
    x,
    norm1_weight,
    norm1_bias,
    qkv_weight,
    qkv_bias,
    proj_weight,
    proj_bias,
    scale1,
    norm2_weight,
    norm2_bias,
    fc1_weight,
    fc1_bias,
    fc2_weight,
    fc2_bias,
    scale2,
    num_heads,
    eps,
    norm,
    activation,
    attention_scale,
    gate_weight=None,
    gate_bias=None,
    inner_weight=None,
    inner_bias=None,
    q_norm_weight=None,
    q_norm_bias=None,
    k_norm_weight=None,
    k_norm_bias=None,
    cos=None,
    sin=None,
    mask=None,
    kv_lens=None,
    cu_seqlens=None,
    inner_norm=None,
    inner_eps=0.0,
    qk_norm=None,
    qk_eps=0.0,
    rope="half",
):
    """x [B, S, D] through L blocks -> [B, S, D]; bfloat16, float16 or float32, one dtype for x and
    all weights.

    Arguments as `vit_block`, every weight and bias with an axis of L layers in front: qkv_weight
    HBM [L, D, 3 * H * d], norm1_weight [L, D], and so on; what is None is None in all layers. cos,
    sin, mask, kv_lens and cu_seqlens serve all layers and have no such axis.
    """
    weights = {
        "norm1_weight": norm1_weight,
        "norm1_bias": norm1_bias,
        "qkv_weight": qkv_weight,
        "qkv_bias": qkv_bias,
        "proj_weight": proj_weight,
        "proj_bias": proj_bias,
        "scale1": scale1,
        "norm2_weight": norm2_weight,
        "norm2_bias": norm2_bias,
        "fc1_weight": fc1_weight,
        "fc1_bias": fc1_bias,
        "fc2_weight": fc2_weight,
        "fc2_bias": fc2_bias,
        "scale2": scale2,
        "gate_weight": gate_weight,
        "gate_bias": gate_bias,
        "inner_weight": inner_weight,
        "inner_bias": inner_bias,
        "q_norm_weight": q_norm_weight,
        "q_norm_bias": q_norm_bias,
        "k_norm_weight": k_norm_weight,
        "k_norm_bias": k_norm_bias,
    }
    options = Options(
        num_heads,
        eps,
        norm,
        activation,
        attention_scale,
        inner_norm,
        inner_eps,
        qk_norm,
        qk_eps,
        rope,
        cos,
        sin,
        mask,
        kv_lens,
        cu_seqlens,
    )
    return encode(x, weights, fc1_weight.shape[0], options)
