"""Kernels that HBM traffic or a single engine bounds: streams, AdamW, RMSNorm with a projection."""

import nki
import nki.isa as nisa
import nki.language as nl

ROWS = 128


def _load(source):
    tile = nl.ndarray(source.shape, dtype=source.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=source)
    return tile


def _column(value):
    tile = nl.ndarray((ROWS, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=tile, value=value)
    return tile


@nki.jit
def stream(weights, width):
    """Load [128, width] blocks of ``weights`` [128, N] and add up one column of each.

    As a launch for two cores each takes half of the blocks.
    """
    blocks = weights.shape[1] // width
    cores, core = nl.num_programs(0), nl.program_id(0)
    share = blocks // cores
    out = nl.ndarray((ROWS, cores), dtype=weights.dtype, buffer=nl.shared_hbm)
    total = nl.ndarray((ROWS, 1), dtype=weights.dtype, buffer=nl.sbuf)
    nisa.memset(dst=total, value=0.0)
    for block in range(share):
        tile = _load(weights[:, nl.ds((core * share + block) * width, width)])
        nisa.tensor_tensor(dst=total, data1=total, data2=tile[:, 0:1], op=nl.add)
    nisa.dma_copy(dst=out[:, core : core + 1], src=total)
    return out


@nki.jit
def adamw(weight, gradient, mean, square, rate, decay, beta1, beta2, eps):
    """One AdamW step on [N, D] float32 tensors; only the new weight is written."""
    rows, width = weight.shape
    floor = _column(eps)
    out = nl.ndarray(weight.shape, dtype=weight.dtype, buffer=nl.shared_hbm)
    for start in range(0, rows, ROWS):
        size = min(ROWS, rows - start)
        block = nl.ds(start, size)
        value, slope = _load(weight[block, :]), _load(gradient[block, :])
        first, second = _load(mean[block, :]), _load(square[block, :])
        # first = beta1 * mean + (1 - beta1) * gradient
        nisa.activation(dst=first, op=nl.copy, data=first, scale=beta1)
        nisa.scalar_tensor_tensor(
            dst=first, data=slope, op0=nl.multiply, operand0=1.0 - beta1, op1=nl.add,
            operand1=first,
        )  # fmt: skip
        # second = beta2 * square + (1 - beta2) * gradient^2
        nisa.activation(dst=slope, op=nl.square, data=slope, scale=(1.0 - beta2) ** 0.5)
        nisa.scalar_tensor_tensor(
            dst=second, data=second, op0=nl.multiply, operand0=beta2, op1=nl.add, operand1=slope
        )
        nisa.activation(dst=second, op=nl.rsqrt, data=second, bias=floor[0:size, :])
        nisa.tensor_tensor(dst=first, data1=first, data2=second, op=nl.multiply)
        # value = (1 - rate * decay) * value - rate * first / sqrt(second)
        nisa.activation(dst=value, op=nl.copy, data=value, scale=1.0 - rate * decay)
        nisa.scalar_tensor_tensor(
            dst=value, data=first, op0=nl.multiply, operand0=-rate, op1=nl.add, operand1=value
        )
        nisa.dma_copy(dst=out[block, :], src=value)
    return out


@nki.jit
def rms_norm_projection(x, weight, gamma, eps):
    """RMSNorm of x [N, D] and its product with weight [D, C]; N, D multiples of 128, C <= 512."""
    rows, width = x.shape
    columns = weight.shape[1]
    steps = width // ROWS
    floor = _column(eps)
    out = nl.ndarray((rows, columns), dtype=x.dtype, buffer=nl.shared_hbm)
    scale = nl.ndarray((ROWS, steps), dtype=gamma.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=scale, src=gamma.reshape((steps, ROWS)).permute((1, 0)))
    wide = nl.ndarray((ROWS, steps), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=wide, src=scale)
    held = []
    for step in range(steps):
        held.append(_load(weight[nl.ds(step * ROWS, ROWS), :]))
    for start in range(0, rows, ROWS):
        tile = _load(x[nl.ds(start, ROWS), :])
        squares = nl.ndarray(tile.shape, dtype=nl.float32, buffer=nl.sbuf)
        total = nl.ndarray((ROWS, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation_reduce(
            dst=squares, op=nl.square, data=tile, reduce_op=nl.add, reduce_res=total
        )
        nisa.activation(dst=total, op=nl.rsqrt, data=total, scale=1.0 / width, bias=floor)
        normed = nl.ndarray(tile.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=normed, data=tile, op0=nl.multiply, operand0=total)
        psum = nl.ndarray((ROWS, columns), dtype=nl.float32, buffer=nl.psum)
        for step in range(steps):
            turned = nl.ndarray((ROWS, ROWS), dtype=x.dtype, buffer=nl.psum)
            nisa.nc_transpose(dst=turned, data=normed[:, nl.ds(step * ROWS, ROWS)])
            left = nl.ndarray((ROWS, ROWS), dtype=x.dtype, buffer=nl.sbuf)
            nisa.tensor_scalar(
                dst=left, data=turned, op0=nl.multiply, operand0=wide[:, step : step + 1]
            )
            nisa.nc_matmul(dst=psum, stationary=left, moving=held[step])
        result = nl.ndarray((ROWS, columns), dtype=x.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=result, src=psum)
        nisa.dma_copy(dst=out[nl.ds(start, ROWS), :], src=result)
    return out


@nki.jit
def mamba(delta, u, a, b, c, states_outside):
    """Mamba's state space scan: delta, u [C, S], a [C, N], b, c [N, S], float32; out [C, S].

    With ``states_outside`` the loop over states is the outer one, so that delta and u are loaded
    again for every state (the tutorial's first version); otherwise the loop over channels is.
    """
    channels, size = delta.shape
    states = a.shape[1]
    out = nl.ndarray((channels, size), dtype=delta.dtype, buffer=nl.shared_hbm)
    ones = nl.ndarray((1, ROWS), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=ones, value=1.0)
    tiles = channels // ROWS
    sums = []
    for _ in range(tiles if states_outside else 1):
        sums.append(nl.ndarray((ROWS, size), dtype=nl.float32, buffer=nl.sbuf))
    if states_outside:
        for tile in range(tiles):
            nisa.memset(dst=sums[tile], value=0.0)
        for state in range(states):
            left, right = _spread(b, state, ones), _spread(c, state, ones)
            for tile in range(tiles):
                rows = nl.ds(tile * ROWS, ROWS)
                step, value = _load(delta[rows, :]), _load(u[rows, :])
                rate = _load(a[rows, state : state + 1])
                _advance(sums[tile], step, value, rate, left, right)
        for tile in range(tiles):
            nisa.dma_copy(dst=out[nl.ds(tile * ROWS, ROWS), :], src=sums[tile])
    else:
        for tile in range(tiles):
            rows = nl.ds(tile * ROWS, ROWS)
            nisa.memset(dst=sums[0], value=0.0)
            step, value = _load(delta[rows, :]), _load(u[rows, :])
            for state in range(states):
                left, right = _spread(b, state, ones), _spread(c, state, ones)
                rate = _load(a[rows, state : state + 1])
                _advance(sums[0], step, value, rate, left, right)
            nisa.dma_copy(dst=out[rows, :], src=sums[0])
    return out


def _spread(source, state, ones):
    """Row ``state`` of source [N, S] on all partitions, in SBUF."""
    row = _load(source[state : state + 1, :])
    size = row.shape[1]
    spread = nl.ndarray((ROWS, size), dtype=nl.float32, buffer=nl.sbuf)
    for start in range(0, size, 512):
        part = nl.ds(start, min(512, size - start))
        psum = nl.ndarray((ROWS, min(512, size - start)), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=psum, stationary=ones, moving=row[:, part])
        nisa.activation(dst=spread[:, part], op=nl.copy, data=psum)
    return spread


def _advance(total, step, value, rate, left, right):
    """total += c * scan(exp(delta a), delta u b) for one state and one tile of channels."""
    decay = nl.ndarray(step.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.activation(dst=decay, op=nl.exp, data=step, scale=rate)
    inflow = nl.ndarray(step.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=inflow, data1=step, data2=value, op=nl.multiply)
    nisa.tensor_tensor(dst=inflow, data1=inflow, data2=left, op=nl.multiply)
    scan = nl.ndarray(step.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_tensor_scan(
        dst=scan, data0=decay, data1=inflow, initial=0.0, op0=nl.multiply, op1=nl.add
    )
    nisa.tensor_tensor(dst=scan, data1=scan, data2=right, op=nl.multiply)
    nisa.tensor_tensor(dst=total, data1=total, data2=scan, op=nl.add)
