"""A whole pre-norm Transformer encoder block in one launch.

    y   = x + scale1 * proj(attention(norm1(x)))
    out = y + scale2 * fc2(act(fc1(norm2(y))))

Images are processed in groups; `block.py` has what is done for a group, in two tasks. The second
task of a group is issued together with the first one of the next group.

Between HBM reads of x and the HBM write of the result nothing leaves the chip; the residual
stream is float32. Engines: TensorE all matmuls and transposes; ScalarE exp, GELU, the squares of
the norms, and the evictions of transposes and of attention results; VectorE maxima, sums and
scaling of the norms, and the evictions of projections with bias and residual; GpSimd makes the
residual stream of x and, without LayerScale, the bias of the projection.

SBUF: `limits.vit_block_plan` chooses the size of the group, of the passes and of the block from the
budget of `limits.block_bytes`. Where nothing else fits there is one group at a time, one norm tile
and one unit of attention, and the columns of attention are made after its last pass.
"""

import nki

from .block import Weights
from .encoder import encode


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
):
    """x [B, S, D] -> [B, S, D]; bfloat16, float16 or float32, one dtype for x and all weights.

    qkv_weight: HBM [D, 3 * H * d], columns: q heads, k heads, v heads; proj_weight [H * d, D];
    fc1_weight [D, I]; fc2_weight [I, D]. norm1_weight, norm2_weight, scale1, scale2 (LayerScale)
    and every bias: HBM vectors or None. norm: "layer" or "rms" (then both norm biases are None).
    activation: "gelu", "gelu_tanh" or "quick_gelu". attention_scale: float, 1 / sqrt(d) for ViT.
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
    return encode(x, weights.stacked(), 1, num_heads, eps, norm, activation, attention_scale)
