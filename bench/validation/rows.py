"""The published measurements, and the kernel that stands for each."""

from dataclasses import dataclass
from typing import Callable

import ml_dtypes
import numpy as np

import nki_emulator

nki_emulator.install()

from . import attention, matmul, streams  # noqa: E402 - they import nki

BFLOAT16, FLOAT16, FLOAT32 = ml_dtypes.bfloat16, np.float16, np.float32
MATMUL, DMA, ATTENTION, VECTOR = "matmul", "dma", "attention", "vector"
# Fixed costs decide: attention over fewer than 1024 tokens, a single small projection.
SMALL = "small"


@dataclass(frozen=True)
class Published:
    """One measurement.

    ``microseconds`` is the published time; ``launch`` whether it includes the fixed cost of a
    launch. ``arguments`` makes the kernel's arguments. ``times`` is how often the modelled part
    stands in the measured kernel (a big product is modelled on a slice of its rows or columns that
    its outermost loop repeats). ``note`` says what the source leaves open.
    """

    name: str
    regime: str
    target: str
    microseconds: float
    kernel: Callable
    arguments: Callable
    source: str
    launch: bool = True
    times: int = 1
    lnc: int = 1
    note: str = ""


def _zeros(dtype, *shapes):
    return tuple(np.zeros(shape, dtype) for shape in shapes)


def _product(k, m, n, dtype, *settings):
    return lambda: (*_zeros(dtype, (k, m), (k, n)), *settings)


def _heads(size):
    return lambda: _zeros(BFLOAT16, (128, size), (128, size), (size, 128))


def _mamba(channels, size, states_outside):
    return lambda: (
        *_zeros(FLOAT32, (channels, size), (channels, size), (channels, 16), (16, size),
                (16, size)),
        states_outside,
    )  # fmt: skip


def _stream(megabytes, width):
    return lambda: (np.zeros((128, megabytes * 2**20 // 256), BFLOAT16), width)


def _norm(rows, width, columns):
    return lambda: (*_zeros(FLOAT16, (rows, width), (width, columns), (width,)), 1e-6)


def _adamw():
    shape = (10944, 2048)
    return (*_zeros(FLOAT32, shape, shape, shape, shape), 1e-3, 1e-2, 0.9, 0.999, 1e-8)


TIER_B = "nki-autotune, notes on software pipelining"
TUTORIAL = "Neuron documentation, kernel optimization guide"
BLOG = "junjietang.dev, 2026-03-12, attention on trn1"
MAMBA = "Neuron documentation, fused Mamba tutorial"
STREAMS = "line fitted to AWS's published figures of weight-streaming kernels"
SAMPLES = "nki-samples, latencies asserted by its tests"
CURVE = "Neuron documentation, DMA overview, picture of bandwidth against row size"

# Per cent of the DMA engines' rate that 128 rows of so many bytes reach in one dma_copy.
_CURVE = {
    32: 1.3, 64: 2.6, 128: 5.0, 256: 10.3, 512: 20.6, 1024: 42.2, 2048: 81.3, 4096: 96.6,
    8192: 98.3, 32768: 100.0,
}  # fmt: skip
_TRANSFERS = 32

PUBLISHED = [
    Published(
        "2048^3 bf16, two PSUM tiles", MATMUL, "trn2", 262, matmul.resident,
        _product(2048, 2048, 2048, BFLOAT16, 2), TIER_B,
        note="which operand is loaded when is not described; here both stay in SBUF",
    ),
    Published(
        "2048^3 bf16, one PSUM tile", MATMUL, "trn2", 366, matmul.resident,
        _product(2048, 2048, 2048, BFLOAT16, 1), TIER_B,
        note="which operand is loaded when is not described; here both stay in SBUF",
    ),
    Published(
        "2048^3 bf16, loads inside", DMA, "trn2", 1370, matmul.loads_inside,
        _product(2048, 2048, 2048, BFLOAT16), TIER_B,
    ),
    Published(
        "4096x8192x8192 fp32, loads inside", DMA, "trn2", 39890, matmul.loads_inside,
        _product(8192, 512, 8192, FLOAT32), TUTORIAL, times=8,
    ),
    Published(
        "4096x8192x8192 fp32, loads hoisted", MATMUL, "trn2", 28200, matmul.loads_hoisted,
        _product(8192, 512, 8192, FLOAT32), TUTORIAL, times=8,
    ),
    Published(
        "4096x8192x8192 fp32, K blocked", MATMUL, "trn2", 28300, matmul.blocked_k,
        _product(8192, 4096, 1024, FLOAT32, 8, 2, 8), TUTORIAL, times=8,
        note="blocks of 8 tiles of M; with the tutorial's 16 the tiles alive fill the whole SBUF",
    ),
    Published(
        "4096x8192x8192 bf16, loads inside", DMA, "trn1", 20990, matmul.loads_inside,
        _product(8192, 512, 8192, BFLOAT16), "autocomp, GEMM on trn1", times=8,
    ),
    Published(
        "4096x8192x8192 bf16, best", MATMUL, "trn1", 6960, matmul.blocked_k,
        _product(8192, 4096, 1024, BFLOAT16, 16, 2, 8), "autocomp, GEMM on trn1", times=8,
        note="the winning structure is not described; here the tutorial's last one",
    ),
    *(
        Published(
            f"attention S {size}, online", ATTENTION if size >= 1024 else SMALL, "trn1",
            microseconds, attention.online, _heads(size), BLOG, launch=False,
            note="one head of 128; the source gives a line a version, the order of issue is ours",
        )
        for size, microseconds in ((512, 25), (1024, 67), (2048, 229), (4096, 873))
    ),
    *(
        Published(
            f"attention S {size}, pipelined", ATTENTION if size >= 1024 else SMALL, "trn1",
            microseconds, attention.pipelined, _heads(size), BLOG, launch=False,
            note="one head of 128; the source gives a line a version, the order of issue is ours",
        )
        for size, microseconds in ((512, 19), (1024, 39), (2048, 112), (4096, 400))
    ),
    Published(
        "Mamba v1 S 512 C 256", VECTOR, "trn1", 150.93, streams.mamba, _mamba(256, 512, True),
        MAMBA, launch=False,
    ),
    Published(
        "Mamba v1 S 512 C 4096", VECTOR, "trn1", 2340, streams.mamba, _mamba(4096, 512, True),
        MAMBA,
    ),
    Published(
        "Mamba v2 S 512 C 4096", VECTOR, "trn1", 1610, streams.mamba, _mamba(4096, 512, False),
        MAMBA, note="the compiler moved a product out of the loop over states",
    ),
    Published(
        "AdamW 10944x2048 fp32", DMA, "trn1", 2000, streams.adamw, _adamw,
        "AccelOpt, NKIBench", note="the published bytes are four reads and one write",
    ),
    *(
        Published(
            f"weights, one core, {size} MiB", DMA, "trn2", 13.6 + size * 2**20 / 375e3,
            streams.stream, _stream(size, 4096), STREAMS,
        )
        for size in (16, 64, 256)
    ),
    *(
        Published(
            f"weights, two cores, {size} MiB", DMA, "trn2", 42.3 + size * 2**20 / 669e3,
            streams.stream, _stream(size, 4096), STREAMS, lnc=2,
        )
        for size in (16, 64, 256)
    ),
    *(
        Published(
            f"{_TRANSFERS} loads of 128 rows of {size} B", DMA, "trn2",
            _TRANSFERS * 128 * size / (368e3 * share / 100), streams.stream,
            lambda size=size: (np.zeros((128, _TRANSFERS * size // 2), BFLOAT16), size // 2),
            CURVE, launch=False,
            note="the picture has the rate only; its queue and its overlap are not described",
        )
        for size, share in _CURVE.items()
    ),
    *(
        Published(
            f"RMSNorm and projection {rows}x{width}x{columns} fp16", SMALL, "trn1", microseconds,
            streams.rms_norm_projection, _norm(rows, width, columns), SAMPLES,
            note="an upper bound that a test asserts",
        )
        for rows, width, columns, microseconds in (
            (128, 512, 512, 25), (512, 1024, 384, 40), (128, 1024, 512, 28),
        )
    ),
]  # fmt: skip
