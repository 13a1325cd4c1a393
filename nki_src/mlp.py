"""Two-layer MLP: y = act(x W1 + b1) W2 + b2 for rows of x.

Layout: x^T columns (tensor-engine transpose) -> hidden columns `[hidden, tokens]`, bias and GELU
applied by ScalarE while it evicts PSUM -> rows `[tokens, out]`: the hidden columns are already the
stationary operand of the second matmul, so nothing is transposed in between.

The hidden activations of a block of at most 512 tokens stay on the chip; the block shrinks when
the hidden width is large. SBUF: `limits.mlp_bytes`.
"""

import nki
import nki.language as nl

from .limits import PARTITIONS, ceil_div, mlp_block_tokens
from .linear import load_transposed, store_tiles
from .project import project_columns, project_rows
from .tiles import available_bytes, dtype_bytes, program_share


@nki.jit
def mlp(x, fc1_weight, fc1_bias, fc2_weight, fc2_bias, activation, weight_layout):
    """x [T, D] -> [T, O] in the dtype of x.

    fc1_weight, fc2_weight: HBM [D, I] and [I, O] if weight_layout is "in_out", [I, D] and [O, I]
    if it is "out_in". fc1_bias [I], fc2_bias [O] or None. activation: "gelu" (erf), "gelu_tanh" or
    "quick_gelu" (x * sigmoid(1.702 x)). bfloat16, float16 or float32, one dtype for all.
    """
    tokens, width = x.shape
    in_out = weight_layout == "in_out"
    hidden = fc1_weight.shape[1] if in_out else fc1_weight.shape[0]
    out = fc2_weight.shape[1] if in_out else fc2_weight.shape[0]
    item = dtype_bytes(x.dtype)
    block = mlp_block_tokens(tokens, width, hidden, out, item, not in_out, available_bytes())
    assert block > 0, f"mlp: width {width}, hidden {hidden}, out {out} does not fit on the chip"
    y = nl.ndarray((tokens, out), dtype=x.dtype, buffer=nl.shared_hbm)
    begin, end = program_share(tokens, PARTITIONS)
    for first in range(begin, end, block):
        count = min(block, end - first)
        columns = load_transposed(x, first, count)
        rows = nl.ndarray(
            (PARTITIONS, ceil_div(count, PARTITIONS), out), dtype=x.dtype, buffer=nl.sbuf
        )
        mlp_rows(
            rows,
            columns,
            fc1_weight,
            fc1_bias,
            fc2_weight,
            fc2_bias,
            activation,
            weight_layout,
            None,
            None,
        )
        store_tiles(y, first, count, rows)
    return y


def activation_function(name):
    """The ScalarE function of an activation name."""
    if name == "gelu":
        return nl.gelu
    if name == "gelu_tanh":
        return nl.gelu_apprx_tanh
    assert name == "quick_gelu", (
        f'activation "{name}": allowed are "gelu", "gelu_tanh", "quick_gelu"'
    )
    return nl.gelu_apprx_sigmoid


def mlp_rows(
    dst, columns, fc1_weight, fc1_bias, fc2_weight, fc2_bias, activation, layout, scale, residual
):
    """rows dst = residual + scale * (act(x W1 + b1) W2 + b2) for a block of tokens.

    columns: SBUF x^T [128, chunks of width, count]; dst and residual: SBUF rows [128, tiles, out];
    scale: HBM [out] or None; residual None or rows.
    """
    in_out = layout == "in_out"
    width = fc1_weight.shape[0] if in_out else fc1_weight.shape[1]
    hidden = fc1_weight.shape[1] if in_out else fc1_weight.shape[0]
    count = columns.shape[2]
    hidden_columns = nl.ndarray(
        (PARTITIONS, ceil_div(hidden, PARTITIONS), count), dtype=columns.dtype, buffer=nl.sbuf
    )
    project_columns(
        hidden_columns,
        columns,
        width,
        fc1_weight,
        layout,
        fc1_bias,
        activation_function(activation),
    )
    project_rows(dst, hidden_columns, hidden, fc2_weight, layout, fc2_bias, scale, residual)
