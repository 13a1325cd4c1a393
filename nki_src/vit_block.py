"""A whole pre-norm Transformer encoder block in one launch.

    y   = x + scale1 * proj(attention(norm1(x)))
    out = y + scale2 * fc2(act(fc1(norm2(y))))

Images are processed in groups; block.py has what is done for a group, in two tasks, and encoder.py
the order: the second task of a group is issued side by side with the first one of the next group,
and where unrolling would take too many instructions, images become a loop on the device.

Two programs (LNC 2) share the images, or the row tiles of one image alone.

Between HBM reads of x and the HBM write of the result nothing leaves the chip; where loops on the
device have no room for the rows of all groups, x is copied to the result first and worked on there.
The residual stream is float32. Engines: TensorE all matmuls and transposes; ScalarE exp, GELU, the
squares of the norms, and the evictions of transposes, of queries and keys and of attention results;
VectorE maxima, statistics and scaling of the norms, and the evictions of the other projections with
bias and residual; GpSimd makes the residual stream of x and adds the biases of these projections to
it beforehand.

SBUF: `limits.vit_block_plan` chooses the size of the group, of the passes and of the block from the
budget of `limits.block_bytes`. Where nothing else fits there is one group at a time, one norm tile
and one unit of attention, and the columns of attention are made after its last pass.
"""

import nki

from .encoder import encode
from .parameters import Options, stack_of_one


@nki.jit
def vit_block(
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
    """x [B, S, D] -> [B, S, D]; bfloat16, float16 or float32, one dtype for x and all weights.

    qkv_weight: HBM [D, 3 * H * d], columns: q heads, k heads, v heads; proj_weight [H * d, D];
    fc1_weight [D, I]; fc2_weight [I, D]. norm1_weight, norm2_weight, scale1, scale2 (LayerScale)
    and every bias: HBM vectors or None. norm: "layer" or "rms" (then both norm biases are None).
    activation: see `activation_function`. attention_scale: float, 1 / sqrt(d) for ViT.

    gate_weight [D, I]: None, or for a gated MLP (mlp.py), with gate_bias [I] or None. inner_norm:
    None, "layer" or "rms" for a norm in front of fc2, with inner_eps, inner_weight and inner_bias
    [I] or None. qk_norm: None, "layer" or "rms" for a norm of queries and keys, with qk_eps and
    weights [d] for a norm of each head (biases [d] or None), [H * d] for an "rms" of all heads
    together. cos, sin: None, or HBM tables [P, d] or [B, P, d] of one float dtype for the rotation
    of the last P tokens; rope: "half" or "interleaved" (heads.py). mask, kv_lens, cu_seqlens: at
    most one, as of `attention`.
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
    return encode(x, stack_of_one(weights), 1, options)
