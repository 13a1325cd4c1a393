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

from .limits import BANK, PARTITIONS, ceil_div, mlp_plan, part_columns, slab_columns
from .linear import load_transposed, store_tiles
from .norm import NormColumns
from .project import ColumnsProjection, load_weight, part_of, project_rows
from .tiles import (
    WIDE,
    available_bytes,
    broadcast_row,
    contract_parts,
    dtype_bytes,
    load_columns,
    program_share,
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
        mlp_rows(rows, columns, weights, flight)
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
        self.width = up[0].shape[0] if layout == "in_out" else up[0].shape[1]
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


def mlp_rows(dst, columns, weights, flight):
    """rows dst = MLP(x) for a block of tokens.

    columns: SBUF x^T [128, chunks of width, count]; dst: SBUF rows [128, tiles, out]; weights:
    `MlpWeights`; flight: whether an inner norm may have several tiles in flight (`NormColumns`).
    """
    weight, bias = weights.down
    hidden = Hidden(weights, MlpVectors(weights), columns, flight, None)
    for index in range(hidden.work.steps):
        hidden.work.step(index)
    columns = hidden.finish()
    project_rows(dst, columns, weights.hidden, weight, weights.layout, bias)


class MlpVectors(nl.NKIObject):
    """The vectors of the first half of an MLP on the chip; None where absent.

    up, gate: biases, as columns [128, chunks of hidden] float32 or, if there is a norm, as
    broadcast rows [128, hidden]; norm_weight, norm_bias: columns.
    """

    def __init__(self, weights):
        self.norm_weight = None
        self.norm_bias = None
        if weights.norm != None:
            self.norm_weight = load_columns(weights.norm[0], 0, weights.hidden, PARTITIONS)
            self.norm_bias = load_columns(weights.norm[1], 0, weights.hidden, PARTITIONS)
        self.up = bias_of(weights, weights.up)
        self.gate = bias_of(weights, weights.gate)


def bias_of(weights, operand):
    """The bias of `up` or `gate` of `MlpWeights`, see `MlpVectors`; None if there is none."""
    if operand == None:
        return None
    if weights.norm != None:
        return broadcast_row(operand[1], operand[2], weights.hidden)
    return load_columns(operand[1], operand[2], weights.hidden, PARTITIONS)


class Hidden(nl.NKIObject):
    """The hidden features of a block of tokens: `work` in steps, then `finish` -> SBUF columns
    [128, chunks of hidden, count].

    weights: `MlpWeights`; vectors: `MlpVectors`; columns: SBUF x^T [128, chunks of width, count];
    flight: see `mlp_rows`; ring: `WeightRing` of the weights or None.
    """

    def __init__(self, weights, vectors, columns, flight, ring):
        self.columns = None
        self.normed = None
        count = columns.shape[2]
        if weights.norm != None:
            self.normed = NormColumns(
                weights.hidden,
                count,
                columns.dtype,
                vectors.norm_weight,
                vectors.norm_bias,
                weights.norm[2],
                weights.norm[3],
                flight,
            )
            self.work = HiddenRows(self.normed, columns, weights, vectors)
            return
        self.columns = nl.ndarray(
            (PARTITIONS, ceil_div(weights.hidden, PARTITIONS), count),
            dtype=columns.dtype,
            buffer=nl.sbuf,
        )
        if weights.gate != None:
            self.work = GatedColumns(self.columns, columns, weights, vectors, ring)
            return
        self.work = ColumnsProjection(
            self.columns,
            columns,
            weights.width,
            weights.up[0],
            weights.layout,
            vectors.up,
            weights.activation,
            ring,
        )

    def finish(self):
        """The columns, when all steps are done."""
        if self.normed != None:
            return self.normed.finish()
        return self.columns


class GatedColumns(nl.NKIObject):
    """columns dst = act(gate) * up, the two contracted side by side.

    A step is one chunk of hidden features for up to WIDE tokens.
    """

    def __init__(self, dst, columns, weights, vectors, ring):
        self.dst = dst
        self.columns = columns
        self.weights = weights
        self.vectors = vectors
        self.ring = ring
        hidden = weights.hidden
        item = dtype_bytes(columns.dtype)
        self.width = slab_columns(weights.width, hidden, item, 2)
        self.wide = part_columns(weights.width, item)
        # (first feature of the slab, part, first column within the part, first token)
        self.plan = []
        for first in range(0, hidden, self.width):
            last = min(first + self.width, hidden)
            for part in range(ceil_div(last - first, self.wide)):
                low = first + part * self.wide
                for start in range(0, min(self.wide, last - low), PARTITIONS):
                    for token in range(0, columns.shape[2], WIDE):
                        self.plan.append((first, part, start, token))
        self.steps = len(self.plan)
        self.first = -1
        self.gates = None
        self.ups = None

    def step(self, index):
        """Step `index` of `steps`."""
        first, number, start, token = self.plan[index]
        if first != self.first:
            self.load(first, min(self.width, self.weights.hidden - first))
        gate_part = self.gates[number]
        size = min(PARTITIONS, gate_part.shape[2] - start)
        chunk = (first + number * self.wide + start) // PARTITIONS
        total = min(WIDE, self.columns.shape[2] - token)
        moving = split_free(self.columns, token, total)
        width = self.weights.width
        gates = psum_parts(size, total)
        contract_parts(gates, gate_part[:, :, start : start + size], moving, width)
        ups = psum_parts(size, total)
        contract_parts(ups, self.ups[number][:, :, start : start + size], moving, width)
        for part in range(len(moving)):
            low = token + part * BANK
            gated_product(
                self.dst[0:size, chunk, low : low + moving[part].shape[2]],
                gates[part],
                column_of(self.vectors.gate, size, chunk),
                ups[part],
                column_of(self.vectors.up, size, chunk),
                self.weights.activation,
            )
        if index == self.steps - 1:
            self.gates = None
            self.ups = None

    def load(self, first, columns):
        """The slabs of hidden features [first, first + columns), in parts of `wide` columns."""
        self.first = first
        self.gates = []
        self.ups = []
        for low in range(0, columns, self.wide):
            size = min(self.wide, columns - low)
            weights = self.weights
            self.gates.append(load_operand(weights, weights.gate, first + low, size, self.ring))
            self.ups.append(load_operand(weights, weights.up, first + low, size, self.ring))


def load_operand(weights, operand, first, columns, ring):
    """Hidden features [first, first + columns) of `up` or `gate` of `MlpWeights`."""
    matrix, _, offset = operand
    return load_weight(
        matrix, weights.layout, weights.width, offset + first, columns, 0, None, ring
    )


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


class HiddenRows(nl.NKIObject):
    """The hidden features as rows, pushed to `normed`, a `NormColumns`, tile by tile.

    A step is a tile of tokens and as many features as a PSUM bank holds.
    """

    def __init__(self, normed, columns, weights, vectors):
        self.normed = normed
        self.columns = columns
        self.weights = weights
        self.vectors = vectors
        count = columns.shape[2]
        hidden = weights.hidden
        self.rows = nl.ndarray(
            (PARTITIONS, ceil_div(count, PARTITIONS), hidden), dtype=columns.dtype, buffer=nl.sbuf
        )
        slabs = 1 if weights.gate == None else 2
        self.width = slab_columns(weights.width, hidden, dtype_bytes(columns.dtype), slabs)
        # (first feature of the slab, first token, first column within the slab)
        self.plan = []
        for first in range(0, hidden, self.width):
            for token in range(0, count, PARTITIONS):
                for start in range(0, min(self.width, hidden - first), BANK):
                    self.plan.append((first, token, start))
        self.steps = len(self.plan)
        self.first = -1
        self.gate = None
        self.up = None

    def step(self, index):
        """Step `index` of `steps`."""
        first, token, start = self.plan[index]
        weights = self.weights
        if first != self.first:
            self.first = first
            size = min(self.width, weights.hidden - first)
            if weights.gate != None:
                self.gate = load_operand(weights, weights.gate, first, size, None)
            self.up = load_operand(weights, weights.up, first, size, None)
        tile = token // PARTITIONS
        here = min(PARTITIONS, self.columns.shape[2] - token)
        size = min(BANK, self.up.shape[2] - start)
        low = first + start
        high = low + size
        parts = psum_parts(here, size)
        moving = [self.up[:, :, start : start + size]]
        if self.gate != None:
            moving.append(self.gate[:, :, start : start + size])
            parts.append(psum_parts(here, size)[0])
        stationary = self.columns[:, :, token : token + here]
        contract_parts(parts, stationary, moving, weights.width)
        target = self.rows[0:here, tile, low:high]
        up = biased(parts[0], part_of(self.vectors.up, here, low, high))
        if self.gate == None:
            nisa.activation(dst=target, op=weights.activation, data=up)
        else:
            gate = biased(parts[1], part_of(self.vectors.gate, here, low, high))
            gated_product(target, gate, None, up, None, weights.activation)
        if high == weights.hidden:
            self.normed.push(self.rows[0:here, tile, :])
        if index == self.steps - 1:
            self.gate = None
            self.up = None


def biased(psum, bias):
    """psum + bias in SBUF, float32; psum itself if bias is None."""
    if bias == None:
        return psum
    total = nl.ndarray(psum.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=total, data1=psum, data2=bias, op=nl.add)
    return total
