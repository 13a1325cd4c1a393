"""How fast the emulator is: `python -m bench emulator`.

Three figures, of this machine: the time of every instruction on tiles so small that NumPy's own
work is a few calls, which is what the emulator adds; instructions a second and seconds an image in
a ViT-B/16 encoder, twelve `vit_block` launches in bfloat16 with all checks on; and the share of
that time which the first figures explain. That share is an upper bound of what is spent outside
NumPy, because the small tiles' times hold NumPy's fixed cost of a call as well.
"""

from __future__ import annotations

import statistics
import time

import ml_dtypes
import numpy as np

import nki_emulator

nki_emulator.install()

import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402

ROUNDS, REPEATS = 40, 60
BLOCKS = 12


def instructions(dtype):
    """Name and call of every instruction, on small written tiles (inside a kernel)."""

    def tile(shape, dtype=dtype, buffer=nl.sbuf, value=1.0):
        made = nl.ndarray(shape, dtype=dtype, buffer=buffer)
        nisa.memset(dst=made, value=value)
        return made

    a, b, c = (tile((4, 8)) for _ in range(3))
    column, total = tile((4, 1), nl.float32), tile((4, 1), nl.float32)
    square = tile((8, 8))
    acc = nl.ndarray((8, 8), dtype=nl.float32, buffer=nl.psum)
    turned = nl.ndarray((8, 4), dtype=dtype, buffer=nl.psum)
    stats, pair = tile((4, 6), nl.float32), tile((4, 2), nl.float32)
    mask = tile((4, 8), nl.uint8, value=1)
    indices = tile((4, 8), nl.uint32, value=1)
    turned_sbuf = tile((8, 4))
    hbm = nl.ndarray((4, 8), dtype=dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=hbm, src=a)
    add, mul = nl.add, nl.multiply
    return {
        "dma_copy": lambda: nisa.dma_copy(dst=a, src=hbm),
        "tensor_copy": lambda: nisa.tensor_copy(dst=a, src=b),
        "memset": lambda: nisa.memset(dst=a, value=1.0),
        "nc_matmul": lambda: nisa.nc_matmul(acc, square, square, accumulate=False),
        "nc_transpose": lambda: nisa.nc_transpose(turned, a),
        "activation": lambda: nisa.activation(a, nl.exp, b, bias=column, scale=0.5),
        "tensor_tensor": lambda: nisa.tensor_tensor(a, b, c, add),
        "tensor_scalar": lambda: nisa.tensor_scalar(a, b, mul, column, op1=add, operand1=1.0),
        "scalar_tensor_tensor": lambda: nisa.scalar_tensor_tensor(a, b, mul, column, add, c),
        "tensor_reduce": lambda: nisa.tensor_reduce(total, add, b, 1),
        "tensor_scalar_reduce": lambda: nisa.tensor_scalar_reduce(a, b, mul, 2.0, add, total),
        "reciprocal": lambda: nisa.reciprocal(a, b),
        "bn_stats": lambda: nisa.bn_stats(stats, b),
        "bn_aggr": lambda: nisa.bn_aggr(pair, stats),
        "iota": lambda: nisa.iota(a, [[1, 8]]),
        "affine_select": lambda: nisa.affine_select(a, [[1, 8]], 1, b, 0.0),
        "tensor_copy_predicated": lambda: nisa.tensor_copy_predicated(a, b, mask),
        "tensor_tensor_scan": lambda: nisa.tensor_tensor_scan(a, b, c, 0.0, mul, add),
        "range_select": lambda: nisa.range_select(
            a, b, nl.greater_equal, nl.less, column, column, reduce_cmd=nisa.reduce_cmd.idle
        ),
        "max8": lambda: nisa.max8(a, b),
        "nc_stream_shuffle": lambda: nisa.nc_stream_shuffle(a, b, [0] * 32),
        "nc_n_gather": lambda: nisa.nc_n_gather(a, b, indices),
        "dma_transpose": lambda: nisa.dma_transpose(turned_sbuf, a),
        "(nl.ndarray)": lambda: nl.ndarray((4, 8), dtype=dtype),
        "(t[0:2, 1:5])": lambda: a[0:2, 1:5],
    }


def measure(dtype) -> dict[str, float]:
    """Microseconds of processor time of each instruction: the best of several rounds."""
    times = {}

    def kernel():
        for name, call in instructions(dtype).items():
            best = float("inf")
            for _ in range(ROUNDS):
                start = time.thread_time()
                for _ in range(REPEATS):
                    call()
                best = min(best, time.thread_time() - start)
            times[name] = best / REPEATS * 1e6

    nki_emulator.simulate(kernel)()
    return times


def image() -> tuple[float, dict[str, int]]:
    """Seconds for one 224 x 224 image through twelve blocks of ViT-B/16 in bfloat16, and how often
    each instruction ran."""
    from neuron_vit.nki_src.vit_block import vit_block

    generator = np.random.default_rng(0)

    def random(*shape):
        return (0.05 * generator.standard_normal(shape)).astype(ml_dtypes.bfloat16)

    width, hidden = 768, 3072
    x = random(1, 197, width)
    blocks = [
        (
            random(width), random(width), random(width, 3 * width), random(3 * width),
            random(width, width), random(width), None, random(width), random(width),
            random(width, hidden), random(hidden), random(hidden, width), random(width), None,
            12, 1e-6, "layer", "gelu", 0.125,
        )
        for _ in range(BLOCKS)
    ]  # fmt: skip
    _, session = nki_emulator.record(vit_block)(x, *blocks[0])
    start = time.perf_counter()
    for block in blocks:
        x = vit_block(x, *block)
    seconds = time.perf_counter() - start
    return seconds, {op: BLOCKS * count for op, count in session.counts.items()}


def main(arguments: list[str]) -> int:
    """The command; it takes no arguments."""
    columns = [measure(nl.float32), measure(nl.bfloat16)]
    print(f"{'microseconds an instruction':28}{'float32':>10}{'bfloat16':>10}")
    for name in columns[0]:
        print(f"{name:28}" + "".join(f"{column[name]:10.1f}" for column in columns))
    counted = [[c[name] for name in c if not name.startswith("(")] for c in columns]
    print(f"{'median':28}" + "".join(f"{statistics.median(c):10.1f}" for c in counted))
    seconds, counts = image()
    total = sum(counts.values())
    outside = sum(count * columns[1].get(op, 0.0) for op, count in counts.items()) / 1e6
    print(
        f"\nViT-B/16, one image, {BLOCKS} blocks, bfloat16: {seconds:.2f} s, {total} instructions, "
        f"{total / seconds:.0f} a second, at most {outside / seconds:.0%} of the time outside NumPy"
    )
    return 0
