"""The MLP of a block, plain or gated, for rows of x, with an optional norm between its halves.

    mlp:        h = act(x W1 + b1)                          y = norm(h) W2 + b2
    swiglu_mlp: h = act(x Wg + bg) * (x Wu + bu)            y = norm(h) Wd + bd

Layout: x^T columns (tensor-engine transpose) -> hidden columns `[hidden, tokens]` -> rows
`[tokens, out]`: the hidden columns are already the stationary operand of the second matmul, so
nothing is transposed in between. Bias and activation are applied by ScalarE while it evicts PSUM.
A gate and its partner are contracted side by side into two PSUM groups; VectorE adds the bias of
the partner and multiplies by the activated gate while it evicts.

With a norm, whose statistics run along the hidden features, these are rows first: x^T is the
stationary operand, biases are broadcast rows added by VectorE, and `NormColumns` of norm.py turns
the rows, tile by tile, to hidden columns (weight and bias of the norm ride on that eviction).

The hidden activations of a block of tokens (at most 1024, 512 with a norm) stay on the chip; the
block shrinks when the hidden width is large. SBUF: `limits.mlp_bytes`, from which
`limits.mlp_plan` chooses.
"""

import nki
import nki.isa as nisa
import nki.language as nl

from .limits import BANK, PARTITIONS, ceil_div, mlp_plan, slab_columns
from .linear import load_transposed, store_tiles
from .norm import NormColumns
from .tiles import (
    WIDE,
    available_bytes,
    broadcast_row,
    contract_parts,
    dtype_bytes,
    load_columns,
    load_weight,
    part_of,
    program_share,
    project_columns,
    project_rows,
    psum_parts,
    split_free,
)


@nki.jit
def mlp(
    x,
    fc1_weight,
    fc1_bias,
    fc2_weight,
    fc2_bias,
    activation,
    weight_layout,
    norm_weight=None,
    norm_bias=None,
    norm_eps=0.0,
    norm=None,
):
    """x [T, D] -> [T, O] in the dtype of x.

    fc1_weight, fc2_weight: HBM [D, I] and [I, O] if weight_layout is "in_out", [I, D] and [O, I]
    if it is "out_in". fc1_bias [I], fc2_bias [O] or None. activation: "gelu" (erf), "gelu_tanh",
    "quick_gelu" (x * sigmoid(1.702 x)), "silu" or "relu". norm: None, or "layer" or "rms" for a
    norm of the I hidden features with norm_weight, norm_bias [I] or None and norm_eps.
    bfloat16, float16 or float32, one dtype for all.
    """
    inner = None if norm == None else (norm_weight, norm_bias, norm_eps, norm)
    weights = plain_weights(
        fc1_weight, fc1_bias, fc2_weight, fc2_bias, activation, weight_layout, inner
    )
    return mlp_kernel(x, weights, "mlp")


@nki.jit
def swiglu_mlp(
    x,
    gate_weight,
    gate_bias,
    up_weight,
    up_bias,
    down_weight,
    down_bias,
    activation,
    weight_layout,
    norm_weight=None,
    norm_bias=None,
    norm_eps=0.0,
    norm=None,
):
    """x [T, D] -> [T, O] in the dtype of x.

    gate_weight, up_weight: HBM [D, I] if weight_layout is "in_out", [I, D] if it is "out_in";
    down_weight: [I, O] or [O, I]. gate_bias, up_bias [I], down_bias [O] or None. If up_weight is
    None, gate_weight and gate_bias hold 2 * I features, the gate first; if gate_weight is None,
    up_weight and up_bias do, the gate last. activation: of the gate; names, norm and dtypes as in
    `mlp`.
    """
    inner = None if norm == None else (norm_weight, norm_bias, norm_eps, norm)
    weights = gated_weights(
        gate_weight,
        gate_bias,
        up_weight,
        up_bias,
        down_weight,
        down_bias,
        activation,
        weight_layout,
        inner,
    )
    return mlp_kernel(x, weights, "swiglu_mlp")


def mlp_kernel(x, weights, name):
    tokens, width = x.shape
    hidden, out = weights.hidden, weights.out
    gated = weights.gate != None
    item = dtype_bytes(x.dtype)
    out_in = weights.layout == "out_in"
    inner_norm = weights.norm != None
    block, flight = mlp_plan(
        tokens, width, hidden, out, item, out_in, gated, inner_norm, available_bytes()
    )
    assert block > 0, f"{name}: width {width}, hidden {hidden}, out {out} does not fit on the chip"
    y = nl.ndarray((tokens, out), dtype=x.dtype, buffer=nl.shared_hbm)
    begin, end = program_share(tokens, PARTITIONS)
    for first in range(begin, end, block):
        count = min(block, end - first)
        columns = load_transposed(x, first, count)
        rows = nl.ndarray(
            (PARTITIONS, ceil_div(count, PARTITIONS), out), dtype=x.dtype, buffer=nl.sbuf
        )
        mlp_rows(rows, columns, weights, None, None, flight)
        store_tiles(y, first, count, rows)
    return y


class MlpWeights(nl.NKIObject):
    """The operands of an MLP in HBM, and what it computes with them.

    up, gate: (matrix, vector or None, first), of which the features [first, first + hidden) count:
    the two may share one packed matrix. gate: None for a plain MLP. down: (matrix, vector or None).
    layout: of all matrices, "in_out" or "out_in". norm: (weight, bias, eps, "layer" or "rms") of
    the hidden features, vectors or None, or None for no norm.
    """

    def __init__(self, up, gate, down, hidden, activation, layout, norm):
        self.up = up
        self.gate = gate
        self.down = down
        self.hidden = hidden
        self.out = features_of(down[0], layout)
        self.activation = activation_function(activation)
        self.layout = layout
        self.norm = norm


def plain_weights(fc1_weight, fc1_bias, fc2_weight, fc2_bias, activation, layout, norm):
    """`MlpWeights` of an MLP without a gate."""
    hidden = features_of(fc1_weight, layout)
    up = (fc1_weight, fc1_bias, 0)
    return MlpWeights(up, None, (fc2_weight, fc2_bias), hidden, activation, layout, norm)


def gated_weights(
    gate_weight,
    gate_bias,
    up_weight,
    up_bias,
    down_weight,
    down_bias,
    activation,
    layout,
    norm,
):
    """`MlpWeights` of a gated MLP. Packed matrices as in `swiglu_mlp`."""
    if up_weight == None:
        hidden = features_of(gate_weight, layout) // 2
        gate = (gate_weight, gate_bias, 0)
        up = (gate_weight, gate_bias, hidden)
    elif gate_weight == None:
        hidden = features_of(up_weight, layout) // 2
        gate = (up_weight, up_bias, hidden)
        up = (up_weight, up_bias, 0)
    else:
        hidden = features_of(up_weight, layout)
        gate = (gate_weight, gate_bias, 0)
        up = (up_weight, up_bias, 0)
    return MlpWeights(up, gate, (down_weight, down_bias), hidden, activation, layout, norm)


def features_of(weight, layout):
    """Output features of a matrix in a layout."""
    return weight.shape[1] if layout == "in_out" else weight.shape[0]


def activation_function(name):
    """The ScalarE function of an activation name."""
    if name == "gelu":
        return nl.gelu
    if name == "gelu_tanh":
        return nl.gelu_apprx_tanh
    if name == "silu":
        return nl.silu
    if name == "relu":
        return nl.relu
    assert name == "quick_gelu", (
        f'activation "{name}": allowed are "gelu", "gelu_tanh", "quick_gelu", "silu", "relu"'
    )
    return nl.gelu_apprx_sigmoid


def mlp_rows(dst, columns, weights, scale, residual, flight):
    """rows dst = residual + scale * MLP(x) for a block of tokens.

    columns: SBUF x^T [128, chunks of width, count]; dst and residual: SBUF rows [128, tiles, out];
    weights: `MlpWeights`; scale: HBM [out] or None; residual None or rows. flight: whether an inner
    norm may have several tiles in flight (`NormColumns`).
    """
    weight, bias = weights.down
    if weights.norm == None:
        hidden = hidden_columns(columns, weights)
    else:
        norm_columns = NormColumns(
            weights.hidden, columns.shape[2], columns.dtype, weights.norm, flight
        )
        hidden = hidden_rows(norm_columns, columns, weights)
    project_rows(dst, hidden, weights.hidden, weight, weights.layout, bias, scale, residual)


def hidden_columns(columns, weights):
    """The hidden features as SBUF columns [128, chunks of hidden, count]."""
    count = columns.shape[2]
    hidden = nl.ndarray(
        (PARTITIONS, ceil_div(weights.hidden, PARTITIONS), count),
        dtype=columns.dtype,
        buffer=nl.sbuf,
    )
    if weights.gate == None:
        weight, bias, _ = weights.up
        width = weight.shape[0] if weights.layout == "in_out" else weight.shape[1]
        project_columns(hidden, columns, width, weight, weights.layout, bias, weights.activation)
    else:
        gated_columns(hidden, columns, weights)
    return hidden


def gated_columns(dst, columns, weights):
    """columns dst = act(gate) * up, the two contracted side by side."""
    count = columns.shape[2]
    gate_weight, gate_bias, gate_first = weights.gate
    up_weight, up_bias, up_first = weights.up
    width = gate_weight.shape[0] if weights.layout == "in_out" else gate_weight.shape[1]
    gate_column = load_columns(gate_bias, gate_first, weights.hidden, PARTITIONS)
    up_column = load_columns(up_bias, up_first, weights.hidden, PARTITIONS)
    step = slab_columns(width, weights.hidden, dtype_bytes(columns.dtype), 2)
    for first in range(0, weights.hidden, step):
        gate_slab, up_slab = load_slabs(weights, width, first, min(step, weights.hidden - first))
        for start in range(0, gate_slab.shape[2], PARTITIONS):
            size = min(PARTITIONS, gate_slab.shape[2] - start)
            chunk = (first + start) // PARTITIONS
            for token in range(0, count, WIDE):
                total = min(WIDE, count - token)
                moving = split_free(columns, token, total)
                gates = psum_parts(size, total)
                contract_parts(gates, gate_slab[:, :, start : start + size], moving, width)
                ups = psum_parts(size, total)
                contract_parts(ups, up_slab[:, :, start : start + size], moving, width)
                for part in range(len(moving)):
                    low = token + part * BANK
                    gated_product(
                        dst[0:size, chunk, low : low + moving[part].shape[2]],
                        gates[part],
                        column_of(gate_column, size, chunk),
                        ups[part],
                        column_of(up_column, size, chunk),
                        weights.activation,
                    )


def load_slabs(weights, width, first, columns):
    """The slabs of gate and up for the hidden features [first, first + columns)."""
    gate_weight, _, gate_first = weights.gate
    up_weight, _, up_first = weights.up
    gate = load_weight(gate_weight, weights.layout, width, gate_first + first, columns)
    up = load_weight(up_weight, weights.layout, width, up_first + first, columns)
    return gate, up


def column_of(columns, size, chunk):
    """The first `size` partitions of column `chunk`; None stays None."""
    if columns == None:
        return None
    return columns[0:size, chunk : chunk + 1]


def gated_product(dst, gate, gate_bias, up, up_bias, activation):
    """dst = act(gate + gate_bias) * (up + up_bias).

    gate, up: [rows, n] in PSUM, or in SBUF, where GpSimd can take the product off VectorE; the
    biases: a float32 column [rows, 1] each, or None.
    """
    active = nl.ndarray(gate.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.activation(dst=active, op=activation, data=gate, bias=gate_bias)
    if up_bias == None:
        engine = nisa.engine.gpsimd if up.buffer == nl.sbuf else nisa.engine.vector
        nisa.tensor_tensor(dst=dst, data1=up, data2=active, op=nl.multiply, engine=engine)
    else:
        nisa.scalar_tensor_tensor(
            dst=dst, data=up, op0=nl.add, operand0=up_bias, op1=nl.multiply, operand1=active
        )


def hidden_rows(norm_columns, columns, weights):
    """The hidden features as rows, pushed to `norm_columns` tile by tile -> its columns."""
    count = columns.shape[2]
    hidden = weights.hidden
    up_weight, up_bias, up_first = weights.up
    width = up_weight.shape[0] if weights.layout == "in_out" else up_weight.shape[1]
    up_row = broadcast_row(up_bias, up_first, hidden)
    gate_row = None
    slabs = 1
    if weights.gate != None:
        _, gate_bias, gate_first = weights.gate
        gate_row = broadcast_row(gate_bias, gate_first, hidden)
        slabs = 2
    rows = nl.ndarray(
        (PARTITIONS, ceil_div(count, PARTITIONS), hidden), dtype=columns.dtype, buffer=nl.sbuf
    )
    step = slab_columns(width, hidden, dtype_bytes(columns.dtype), slabs)
    for first in range(0, hidden, step):
        size = min(step, hidden - first)
        gate_slab = None
        if weights.gate == None:
            up_slab = load_weight(up_weight, weights.layout, width, up_first + first, size)
        else:
            gate_slab, up_slab = load_slabs(weights, width, first, size)
        for token in range(0, count, PARTITIONS):
            tile = token // PARTITIONS
            here = min(PARTITIONS, count - token)
            stationary = columns[:, :, token : token + here]
            for start in range(0, size, BANK):
                low = first + start
                high = first + min(start + BANK, size)
                moving = [up_slab[:, :, start : start + high - low]]
                if gate_slab != None:
                    moving.append(gate_slab[:, :, start : start + high - low])
                parts = psum_parts(here, high - low)
                if gate_slab != None:
                    parts.append(psum_parts(here, high - low)[0])
                contract_parts(parts, stationary, moving, width)
                target = rows[0:here, tile, low:high]
                up = biased(parts[0], part_of(up_row, here, low, high))
                if gate_slab == None:
                    nisa.activation(dst=target, op=weights.activation, data=up)
                else:
                    gate = biased(parts[1], part_of(gate_row, here, low, high))
                    gated_product(target, gate, None, up, None, weights.activation)
            if first + size == hidden:
                norm_columns.push(rows[0:here, tile, :])
    return norm_columns.finish()


def biased(psum, bias):
    """psum + bias in SBUF, float32; psum itself if bias is None."""
    if bias == None:
        return psum
    total = nl.ndarray(psum.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=total, data1=psum, data2=bias, op=nl.add)
    return total
