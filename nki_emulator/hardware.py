"""The hardware figures: one table for each NeuronCore generation, every number with its source.

A figure is a number that also knows its ``unit``, its ``tag`` and its ``source``. The tags are

``documented``   stated in the Neuron documentation;
``profile``      read off a profiler picture published in the documentation;
``third-party``  measured and published by others, not reviewed;
``inferred``     arithmetic on other figures, or carried over from another generation;
``fitted``       chosen so that the model meets a published measurement, which the source names.

Capacities and tile limits serve the emulator (see `targets.py`), the rest the timing model (see
`timing`). Sources: `arch2`, `arch3` and `arch1` are the architecture guides of Trainium2, Trainium3
and Trainium/Inferentia2; `isa226` is the NKI instruction reference of Neuron SDK 2.26, the last one
with costs, written for NeuronCore-v2; `voyager` is the trn2 calibration of github
Joejoedesu/voyager-compiler.
"""

from dataclasses import dataclass, fields

KIB = 1024
TAGS = ("documented", "profile", "third-party", "inferred", "fitted")


class Figure(float):
    """A number with its unit, tag and source; in arithmetic a plain float."""

    def __new__(cls, value, unit, tag, source):
        if tag not in TAGS:
            raise ValueError(f"tag {tag!r}; allowed: {', '.join(TAGS)}")
        figure = super().__new__(cls, value)
        figure.unit, figure.tag, figure.source = unit, tag, source
        return figure

    def __getnewargs__(self):
        return float(self), self.unit, self.tag, self.source


def _documented(value, unit, source):
    return Figure(value, unit, "documented", source)


def _inferred(value, unit, source):
    return Figure(value, unit, "inferred", source)


@dataclass(frozen=True)
class Hardware:
    """Figures of one NeuronCore generation (one physical core)."""

    name: str
    generation: int

    # Memory.
    sbuf_partition: Figure
    psum_bank: Figure
    psum_banks: Figure
    partitions: Figure

    # Clocks.
    tensor_clock: Figure
    vector_clock: Figure
    scalar_clock: Figure
    gpsimd_clock: Figure

    # Tensor engine.
    matmul_minimum: Figure
    matmul_float32: Figure
    load_stationary: Figure
    tensor_latency: Figure
    tensor_latency_float32: Figure

    # The other engines.
    minimum_interval: Figure
    vector_latency: Figure
    scalar_latency: Figure
    gpsimd_latency: Figure
    gpsimd_start: Figure
    accumulator_read: Figure
    table_load: Figure
    reciprocal_interval: Figure
    register: Figure
    vector_fast_modes: Figure
    scalar_fast: Figure

    # DMA.
    dma_engines: Figure
    dma_rate: Figure
    dma_peak_rate: Figure
    dma_issue: Figure
    dma_first_byte: Figure
    dma_notify: Figure
    dma_descriptor: Figure
    hbm_share: Figure
    pair_rate: Figure

    # A launch.
    launch: Figure
    launch_pair: Figure

    def figures(self):
        """(name, figure) of every figure, in the order of the table."""
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Figure):
                yield field.name, value

    @property
    def matmul_peak(self):
        """Multiply-adds a nanosecond of the 128 x 128 array in 16-bit types."""
        return 128 * 128 * self.tensor_clock


_ACCESS = "arch1, access latency of SBUF and PSUM: about 60 cycles an access, one in and one out"
_VOYAGER = "voyager, completion of the smallest instruction"
_REGISTER = _inferred(10, "ns", "as a semaphore instruction: 9 ns, performance guide, fig. 12")
_PROFILE_DMA = "pictures nki-dma-intro-3, -5 and -7 of the DMA overview"

V3 = Hardware(
    name="trn2",
    generation=3,
    sbuf_partition=_documented(224 * KIB, "B", "arch2: 28 MiB over 128 partitions"),
    psum_bank=_documented(2 * KIB, "B", "arch1, PSUM: 512 float32 a bank"),
    psum_banks=_documented(8, "banks", "arch1, PSUM"),
    partitions=_documented(128, "partitions", "arch1, SBUF and PSUM"),
    tensor_clock=_documented(2.4, "GHz", "arch2, compute engine table"),
    vector_clock=_documented(0.96, "GHz", "arch2, compute engine table"),
    scalar_clock=_documented(1.2, "GHz", "arch2, compute engine table"),
    gpsimd_clock=_documented(1.2, "GHz", "arch2, compute engine table"),
    matmul_minimum=_documented(64, "cycles", "arch1, tensor engine cost model"),
    matmul_float32=_documented(4, "times", "arch1, tensor engine cost model"),
    load_stationary=_documented(
        32, "cycles", "arch1, fast LoadStationary: 4 times as fast as a 128-column multiply"
    ),
    tensor_latency=Figure(203, "ns", "third-party", "voyager, completion tail in bfloat16"),
    tensor_latency_float32=Figure(381, "ns", "third-party", "voyager, completion tail in float32"),
    minimum_interval=_documented(64, "cycles", "isa226: max(64, N) of every instruction"),
    vector_latency=Figure(155, "ns", "third-party", _VOYAGER + " (153 to 161)"),
    scalar_latency=Figure(190, "ns", "third-party", _VOYAGER + ", tensor_copy (174 to 282)"),
    gpsimd_latency=Figure(177, "ns", "third-party", _VOYAGER + ", affine_select"),
    gpsimd_start=_documented(150, "cycles", "isa226: 150 + N of affine_select and iota"),
    accumulator_read=_documented(64, "cycles", "isa226: activation_reduce, tensor_scalar_reduce"),
    table_load=Figure(1280, "ns", "profile", _PROFILE_DMA + "; voyager has 1283"),
    reciprocal_interval=_documented(8, "cycles", "shared API page, cost of reciprocal"),
    register=_REGISTER,
    vector_fast_modes=_documented(1, "flag", "arch2, vector engine performance modes"),
    scalar_fast=_documented(1, "times", "arch2: one element a cycle"),
    dma_engines=_documented(16, "engines", "DMA bandwidth guide"),
    dma_rate=_documented(368, "B/ns", "DMA bandwidth guide: 16 engines of 23 B/ns"),
    dma_peak_rate=_documented(435, "B/ns", "DMA overview: 16 engines of 27.2 B/ns"),
    dma_issue=_documented(600, "ns", "DGE guide: a hardware DGE instruction"),
    dma_first_byte=Figure(750, "ns", "profile", _PROFILE_DMA + ": 0.74 to 1.0 us"),
    dma_notify=Figure(300, "ns", "profile", _PROFILE_DMA + ": 0.29 to 0.31 us"),
    dma_descriptor=Figure(
        58, "ns", "profile", "picture nki-dma-intro-5: 468 ns for 128 rows of 256 B, 8 an engine"
    ),
    hbm_share=_inferred(375, "B/ns", "arch2: 3.0 TB/s over 8 cores"),
    pair_rate=Figure(
        669, "B/ns", "third-party", "fit of weight streaming with LNC 2 on published QoR figures"
    ),
    launch=Figure(13600, "ns", "third-party", "intercept of the LNC 1 weight streaming fit"),
    launch_pair=Figure(
        42300, "ns", "third-party", "intercept of the LNC 2 weight streaming fit (25 to 43 us seen)"
    ),
)

V4 = Hardware(
    name="trn3",
    generation=4,
    sbuf_partition=_documented(256 * KIB, "B", "arch3: 32 MiB over 128 partitions"),
    psum_bank=V3.psum_bank,
    psum_banks=V3.psum_banks,
    partitions=V3.partitions,
    tensor_clock=_documented(2.4, "GHz", "arch3, compute engine table"),
    vector_clock=_documented(1.2, "GHz", "arch3, compute engine table"),
    scalar_clock=_documented(1.2, "GHz", "arch3, compute engine table"),
    gpsimd_clock=_documented(1.2, "GHz", "arch3, compute engine table"),
    matmul_minimum=V3.matmul_minimum,
    matmul_float32=V3.matmul_float32,
    load_stationary=V3.load_stationary,
    tensor_latency=_inferred(203, "ns", "as v3, same clock"),
    tensor_latency_float32=_inferred(381, "ns", "as v3, same clock"),
    minimum_interval=V3.minimum_interval,
    vector_latency=_inferred(124, "ns", "v3 scaled by the clock"),
    scalar_latency=_inferred(190, "ns", "as v3, same clock"),
    gpsimd_latency=_inferred(177, "ns", "as v3, same clock"),
    gpsimd_start=V3.gpsimd_start,
    accumulator_read=V3.accumulator_read,
    table_load=_inferred(1280, "ns", "as v3"),
    reciprocal_interval=V3.reciprocal_interval,
    register=_REGISTER,
    vector_fast_modes=_inferred(1, "flag", "as v3"),
    scalar_fast=_documented(2, "times", "arch3: tensor_copy and tensor_scalar in 16-bit types"),
    dma_engines=V3.dma_engines,
    dma_rate=_documented(528, "B/ns", "DMA bandwidth guide: 16 engines of 33 B/ns"),
    dma_peak_rate=_documented(614, "B/ns", "DMA overview: 16 engines of 38.4 B/ns"),
    dma_issue=V3.dma_issue,
    dma_first_byte=_inferred(750, "ns", "as v3"),
    dma_notify=_inferred(300, "ns", "as v3"),
    dma_descriptor=_inferred(40, "ns", "v3 scaled by the rate of an engine"),
    hbm_share=_inferred(587, "B/ns", "arch3: 4.7 TB/s over 8 cores"),
    pair_rate=_inferred(960, "B/ns", "v3 scaled by the rate of the DMA engines"),
    launch=_inferred(13600, "ns", "as v3"),
    launch_pair=_inferred(42300, "ns", "as v3"),
)

V2 = Hardware(
    name="trn1",
    generation=2,
    sbuf_partition=_documented(192 * KIB, "B", "arch1: 24 MiB over 128 partitions"),
    psum_bank=V3.psum_bank,
    psum_banks=V3.psum_banks,
    partitions=V3.partitions,
    tensor_clock=_documented(2.8, "GHz", "arch1, compute engine table"),
    vector_clock=_documented(1.12, "GHz", "arch1, compute engine table"),
    scalar_clock=_documented(1.4, "GHz", "arch1, compute engine table"),
    gpsimd_clock=_documented(1.4, "GHz", "arch1, compute engine table"),
    matmul_minimum=V3.matmul_minimum,
    matmul_float32=V3.matmul_float32,
    load_stationary=V3.load_stationary,
    tensor_latency=Figure(
        158, "ns", "profile", "performance guide, figures 18 to 21: 188 to 219 ns for N = 128"
    ),
    tensor_latency_float32=_inferred(316, "ns", "twice the 16-bit latency, two passes"),
    minimum_interval=V3.minimum_interval,
    vector_latency=_documented(107, "ns", _ACCESS),
    scalar_latency=Figure(
        143, "ns", "profile", "performance guide, figure 16: 189 ns between dependent activations"
    ),
    gpsimd_latency=_documented(86, "ns", _ACCESS),
    gpsimd_start=V3.gpsimd_start,
    accumulator_read=V3.accumulator_read,
    table_load=_inferred(1280, "ns", "as v3"),
    reciprocal_interval=V3.reciprocal_interval,
    register=_REGISTER,
    vector_fast_modes=_documented(0, "flag", "arch1 has no performance modes"),
    scalar_fast=_documented(1, "times", "arch1: one element a cycle"),
    dma_engines=V3.dma_engines,
    dma_rate=_documented(272, "B/ns", "DMA bandwidth guide: 16 engines of 17 B/ns"),
    dma_peak_rate=_documented(435, "B/ns", "DMA overview: 16 engines of 27.2 B/ns"),
    dma_issue=_inferred(60, "ns", "no DGE: descriptors are written ahead, one instruction starts"),
    dma_first_byte=_documented(1300, "ns", "DMA bandwidth guide, semaphore to start"),
    dma_notify=_inferred(300, "ns", "as v3"),
    dma_descriptor=Figure(
        20, "ns", "fitted", "bench validate: 4096x8192x8192 bf16, loads inside (trn1)"
    ),
    hbm_share=_inferred(410, "B/ns", "arch1: 820 GB/s over 2 cores"),
    pair_rate=_inferred(544, "B/ns", "two cores, each at the rate of its DMA engines"),
    launch=_inferred(13600, "ns", "as v3"),
    launch_pair=_inferred(42300, "ns", "as v3"),
)

HARDWARE = {2: V2, 3: V3, 4: V4}
