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
import nki.language as nl

from .attention import shift_selectors
from .block import (
    Attention,
    AttentionVectors,
    Form,
    Group,
    Rest,
    RestVectors,
    Store,
    Weights,
)
from .limits import vit_block_plan
from .schedule import run
from .tiles import available_bytes, dtype_bytes, program_share


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
    batch, length, width = x.shape
    embed = proj_weight.shape[0]
    hidden = fc1_weight.shape[1]
    dim = embed // num_heads
    item = dtype_bytes(x.dtype)
    begin, end = program_share(batch, 1)
    plan = vit_block_plan(
        end - begin, length, width, num_heads, dim, hidden, item, available_bytes()
    )
    images, heads_pass, block, flight, groups = plan
    assert images > 0, f"vit_block: {length} tokens of width {width} do not fit on the chip"
    out = nl.ndarray((batch, length, width), dtype=x.dtype, buffer=nl.shared_hbm)
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
    selectors = shift_selectors(num_heads, heads_pass, dim, x.dtype)
    form = Form(
        length, num_heads, dim, eps, norm, activation, attention_scale, x.dtype, plan, selectors
    )
    tasks = []
    image = begin
    while image < end:
        # The odd group comes first: nothing is issued beside its attention.
        size = images
        if image == begin and (end - begin) % images > 0:
            size = (end - begin) % images
        count = size * length
        tasks.append(
            Group(
                x.reshape((batch * length, width)),
                out.reshape((batch * length, width)),
                image * length,
                count,
            )
        )
        image += size
    if flight and len(tasks) > 0:
        tasks[0].load()
    attention_vectors = AttentionVectors(weights, form)
    rest_vectors = None
    rest = None
    for index in range(len(tasks)):
        group = tasks[index]
        following = None
        if groups > 1 and index + 1 < len(tasks):
            following = tasks[index + 1]
        attention = Attention(group, weights, attention_vectors, form, following)
        if rest != None and groups == 1:
            run(rest, None)
            rest = None
        if rest == None:
            run(attention, None)
        else:
            run(rest, attention)
        if rest_vectors == None:
            rest_vectors = RestVectors(weights)
        rest = Rest(group, weights, rest_vectors, form, Store(group.out, group.first))
    if rest != None:
        run(rest, None)
    return out
