"""Several pre-norm Transformer encoder blocks in one launch: `vit_block` after `vit_block`, to the
bit, without the launches and the HBM round trips in between.

Between two blocks the rows of x stay on the chip in the dtype of x while they fit (encoder.py has
how), weights stream. SBUF: as `vit_block`.
"""

import nki

from .block import Weights
from .encoder import encode


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
):
    """x [B, S, D] through L blocks -> [B, S, D]; bfloat16, float16 or float32, one dtype for x and
    all weights.

    Arguments as `vit_block`, every weight with an axis of L layers in front: qkv_weight HBM
    [L, D, 3 * H * d], norm1_weight [L, D], and so on; what is None is None in all layers.
    """
    weights = Weights(
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
    )
    layers = fc1_weight.shape[0]
    return encode(x, weights, layers, num_heads, eps, norm, activation, attention_scale)
