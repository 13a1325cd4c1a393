"""T_min, the floor that the README measures whole encoders against: what their matrix products and
their weights alone would take on the chip, with nothing else and nothing rounded up to tiles."""

from __future__ import annotations

from bench.cases import DTYPES
from bench.models import VitShape
from nki_emulator.hardware import HARDWARE
from nki_emulator.targets import BY_NAME


def t_min(
    shape: VitShape, layers: int, tokens: int, batch: int, dtype: str, target: str, lnc: int
) -> float:
    """Microseconds of `layers` blocks for `batch` images of `tokens` tokens, on `lnc` cores.

    The longer one of the products at the peak of the tensor engine (in float32 it takes
    `matmul_float32` times as long) and of one read of the weights at the rate of the DMA engines;
    the figures and their sources are in `nki_emulator/hardware.py`.
    """
    hardware = HARDWARE[BY_NAME[target].generation]
    products = batch * (tokens * shape.matrix_elements + 2 * tokens * tokens * shape.hidden)
    passes = float(hardware.matmul_float32) if dtype == "fp32" else 1.0
    computing = products * passes / float(hardware.matmul_peak)
    loading = shape.matrix_elements * DTYPES[dtype].itemsize / float(hardware.dma_rate)
    return layers * max(computing, loading) / lnc / 1e3
