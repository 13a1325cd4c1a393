"""The hardware figures: one table for each NeuronCore generation, every number with its source.

A figure is a number that also knows its ``unit``, its ``tag`` and its ``source``. The tags are

``documented``   stated in the Neuron documentation for this generation or for all;
``profile``      read off a profiler picture published in the documentation;
``third-party``  measured and published by others, not reviewed;
``inferred``     arithmetic on other figures, or carried over from another generation;
``fitted``       chosen so that the model meets published measurements: the source names the rows of
                 `bench validate`, by how their names begin.

Capacities serve the emulator (see `targets.py`), the rest the timing model (see `timing`).
Sources: `arch1`, `arch2` and `arch3` are the architecture guides of Trainium/Inferentia2, Trainium2
and Trainium3; `isa226` is the NKI instruction reference of Neuron SDK 2.26, the last one with
costs, written for NeuronCore-v2; `voyager` is the trn2 calibration of github
Joejoedesu/voyager-compiler. Cycles of single instructions stand in `timing/formulas.py`.
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


def _carried(figure, generation):
    """A figure of another generation where this one's is not published."""
    return _inferred(figure, figure.unit, f"as v{generation}: {figure.source}")


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
    dynamic_interval: Figure
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
    dma_packet: Figure
    dma_transpose_hbm: Figure
    dma_transpose_sbuf: Figure
    gpsimd_dma: Figure
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


_ACCESS = "arch1, tensor access overhead: about 60 cycles, once to read and once to write"
_VOYAGER = "voyager, completion of the smallest instruction"
_PROFILE_DMA = "pictures nki-dma-intro-3, -5 and -7 of the DMA overview"
_MINIMUM = "shared API page, cost of reciprocal: MIN_II is about 64 engine cycles"
_RECIPROCAL = "shared API page, cost of reciprocal on the vector engine (voyager measured 6)"

V2 = Hardware(
    name="trn1",
    generation=2,
    sbuf_partition=_documented(192 * KIB, "B", "arch1, compute engines: 192 KiB a partition"),
    psum_bank=_documented(2 * KIB, "B", "arch1, accumulation in PSUM: 512 32-bit values a bank"),
    psum_banks=_documented(8, "banks", "arch1, accumulation in PSUM"),
    partitions=_documented(128, "partitions", "arch1, compute engines"),
    tensor_clock=_documented(2.8, "GHz", "arch1, compute engine table"),
    vector_clock=_documented(1.12, "GHz", "arch1, compute engine table"),
    scalar_clock=_documented(1.4, "GHz", "arch1, compute engine table"),
    gpsimd_clock=_documented(1.4, "GHz", "arch1, compute engine table"),
    matmul_minimum=_documented(64, "cycles", "arch1, tensor engine cost model: MM_INIT_LATENCY"),
    matmul_float32=_documented(4, "times", "arch1, tensor engine cost model"),
    load_stationary=_documented(
        32, "cycles", "performance guide, fast LoadStationary: 128 columns in 128 / 4 cycles"
    ),
    tensor_latency=Figure(
        158, "ns", "profile",
        "performance guide, figures 18 to 21: 188 to 219 ns for N = 128, less its 46 ns",
    ),
    tensor_latency_float32=_inferred(316, "ns", "twice the 16-bit latency, two passes"),
    minimum_interval=_documented(64, "cycles", _MINIMUM),
    vector_latency=_documented(107, "ns", _ACCESS),
    scalar_latency=Figure(
        143, "ns", "profile",
        "performance guide, figure 16: 189 ns between dependent activations, less 64 cycles",
    ),
    gpsimd_latency=_documented(86, "ns", _ACCESS),
    gpsimd_start=_documented(150, "cycles", "isa226: 150 + N of affine_select and iota"),
    accumulator_read=_documented(64, "cycles", "isa226: activation_reduce, tensor_scalar_reduce"),
    table_load=_inferred(1280, "ns", "as v3"),
    reciprocal_interval=_documented(8, "cycles", _RECIPROCAL),
    dynamic_interval=_documented(600, "cycles", "isa226: max(600, N) of tensor_copy_dynamic"),
    register=Figure(9, "ns", "profile", "performance guide, figure 12: a semaphore instruction"),
    vector_fast_modes=_documented(0, "flag", "arch1 has no performance modes"),
    scalar_fast=_documented(1, "times", "arch1: one element a cycle"),
    dma_engines=_documented(16, "engines", "DMA bandwidth guide"),
    dma_rate=_documented(272, "B/ns", "DMA bandwidth guide: 16 engines of 17 B/ns"),
    dma_peak_rate=_documented(435, "B/ns", "DMA overview: 16 engines of 27.2 B/ns"),
    dma_issue=_inferred(
        60, "ns", "no DGE, descriptors are written ahead: some sequencer instructions a transfer"
    ),
    dma_first_byte=_documented(1300, "ns", "DMA bandwidth guide, semaphore to start"),
    dma_notify=_inferred(300, "ns", "as v3"),
    dma_descriptor=Figure(
        20, "ns", "fitted", "bench validate: 4096x8192x8192 bf16, loads inside"
    ),
    dma_packet=_documented(
        4096, "B", "runtime guide, overlap of compute and communication: default packet"
    ),
    dma_transpose_hbm=_inferred(0.9, "of the rate", "as v3; arch1 has no DMA transpose"),
    dma_transpose_sbuf=_inferred(0.5, "of the rate", "as v3; arch1 has no DMA transpose"),
    gpsimd_dma=_inferred(153, "B/ns", "as v3; arch1 has no DMA of GpSimd's own"),
    hbm_share=_inferred(410, "B/ns", "arch1: 820 GB/s over 2 cores"),
    pair_rate=_inferred(544, "B/ns", "two cores, each at the rate of its DMA engines"),
    launch=_inferred(13600, "ns", "as v3"),
    launch_pair=_inferred(42300, "ns", "as v3"),
)  # fmt: skip

V3 = Hardware(
    name="trn2",
    generation=3,
    sbuf_partition=_documented(224 * KIB, "B", "arch2, compute engines: 128 partitions of 224 KiB"),
    psum_bank=_documented(2 * KIB, "B", "arch2: PSUM as in v2"),
    psum_banks=_documented(8, "banks", "arch2: PSUM as in v2"),
    partitions=_documented(128, "partitions", "arch2, compute engines"),
    tensor_clock=_documented(2.4, "GHz", "arch2, compute engine table"),
    vector_clock=_documented(0.96, "GHz", "arch2, compute engine table"),
    scalar_clock=_documented(1.2, "GHz", "arch2, compute engine table"),
    gpsimd_clock=_documented(1.2, "GHz", "arch2, compute engine table"),
    matmul_minimum=_carried(V2.matmul_minimum, 2),
    matmul_float32=_documented(4, "times", "arch2, tensor engine: 79 TFLOPS against 20 in FP32"),
    load_stationary=_carried(V2.load_stationary, 2),
    tensor_latency=Figure(203, "ns", "third-party", "voyager, completion tail in bfloat16"),
    tensor_latency_float32=Figure(381, "ns", "third-party", "voyager, completion tail in float32"),
    minimum_interval=_documented(64, "cycles", _MINIMUM),
    vector_latency=Figure(155, "ns", "third-party", _VOYAGER + " (153 to 161)"),
    scalar_latency=Figure(
        190, "ns", "third-party", _VOYAGER + ", tensor_copy (activations: 251 to 282)"
    ),
    gpsimd_latency=Figure(
        52, "ns", "third-party", _VOYAGER + ", affine_select: 177, less the start of 150 cycles"
    ),
    gpsimd_start=_carried(V2.gpsimd_start, 2),
    accumulator_read=_inferred(
        64, "cycles", "as v2: isa226, activation_reduce (voyager measured 185 ns)"
    ),
    table_load=Figure(1280, "ns", "profile", _PROFILE_DMA + "; voyager has 1283"),
    reciprocal_interval=_documented(8, "cycles", _RECIPROCAL),
    dynamic_interval=_carried(V2.dynamic_interval, 2),
    register=_carried(V2.register, 2),
    vector_fast_modes=_documented(1, "flag", "arch2, vector engine performance mode"),
    scalar_fast=_documented(1, "times", "arch2, compute engine table: 128 elements a cycle"),
    dma_engines=_documented(16, "engines", "DMA bandwidth guide"),
    dma_rate=_documented(368, "B/ns", "DMA bandwidth guide: 16 engines of 23 B/ns"),
    dma_peak_rate=_documented(435, "B/ns", "DMA overview: 16 engines of 27.2 B/ns"),
    dma_issue=_documented(600, "ns", "arch2, DGE: about 600 ns for each DMA instruction"),
    dma_first_byte=Figure(750, "ns", "profile", _PROFILE_DMA + ": 0.74 to 1.0 us"),
    dma_notify=Figure(300, "ns", "profile", _PROFILE_DMA + ": 0.29 to 0.31 us"),
    dma_descriptor=Figure(
        58, "ns", "profile", "picture nki-dma-intro-5: 468 ns for 128 rows of 256 B, 8 an engine"
    ),
    dma_packet=V2.dma_packet,
    dma_transpose_hbm=_documented(0.9, "of the rate", "arch2, HBM2SBUF DMA transpose"),
    dma_transpose_sbuf=_documented(0.5, "of the rate", "arch2, SBUF2SBUF DMA transpose"),
    gpsimd_dma=_documented(153, "B/ns", "arch2, GpSimd engine: integrated DMA, one direction"),
    hbm_share=_inferred(375, "B/ns", "arch2: 3 TB/s over 8 cores"),
    pair_rate=Figure(669, "B/ns", "fitted", "bench validate: weights, two cores"),
    launch=Figure(13600, "ns", "fitted", "bench validate: weights, one core"),
    launch_pair=Figure(42300, "ns", "fitted", "bench validate: weights, two cores"),
)  # fmt: skip

V4 = Hardware(
    name="trn3",
    generation=4,
    sbuf_partition=_inferred(256 * KIB, "B", "arch3: 32 MiB over 128 partitions"),
    psum_bank=_documented(2 * KIB, "B", "arch3: PSUM as in v3"),
    psum_banks=_documented(8, "banks", "arch3: PSUM as in v3"),
    partitions=_documented(128, "partitions", "arch3, indirect access: 128 partitions"),
    tensor_clock=_documented(2.4, "GHz", "arch3, compute engine table"),
    vector_clock=_documented(1.2, "GHz", "arch3, compute engine table"),
    scalar_clock=_documented(1.2, "GHz", "arch3, compute engine table"),
    gpsimd_clock=_documented(1.2, "GHz", "arch3, compute engine table"),
    matmul_minimum=_carried(V2.matmul_minimum, 2),
    matmul_float32=_documented(4, "times", "arch3, tensor engine: 79 TFLOPS against 20 in FP32"),
    load_stationary=_carried(V2.load_stationary, 2),
    tensor_latency=_carried(V3.tensor_latency, 3),
    tensor_latency_float32=_carried(V3.tensor_latency_float32, 3),
    minimum_interval=_documented(64, "cycles", _MINIMUM),
    vector_latency=_inferred(124, "ns", "v3 scaled by the clock"),
    scalar_latency=_carried(V3.scalar_latency, 3),
    gpsimd_latency=_carried(V3.gpsimd_latency, 3),
    gpsimd_start=_carried(V2.gpsimd_start, 2),
    accumulator_read=_carried(V2.accumulator_read, 2),
    table_load=_carried(V3.table_load, 3),
    reciprocal_interval=_documented(8, "cycles", _RECIPROCAL),
    dynamic_interval=_carried(V2.dynamic_interval, 2),
    register=_carried(V2.register, 2),
    vector_fast_modes=_documented(
        1, "flag", "arch3, compute engine table: 512 elements a cycle, and FP8 as well"
    ),
    scalar_fast=_documented(2, "times", "arch3, scalar engine performance mode"),
    dma_engines=_documented(16, "engines", "DMA bandwidth guide"),
    dma_rate=_documented(528, "B/ns", "DMA bandwidth guide: 16 engines of 33 B/ns"),
    dma_peak_rate=_documented(614, "B/ns", "DMA overview: 16 engines of 38.4 B/ns"),
    dma_issue=_carried(V3.dma_issue, 3),
    dma_first_byte=_carried(V3.dma_first_byte, 3),
    dma_notify=_carried(V3.dma_notify, 3),
    dma_descriptor=_inferred(40, "ns", "v3 scaled by the rate of an engine"),
    dma_packet=V2.dma_packet,
    dma_transpose_hbm=_carried(V3.dma_transpose_hbm, 3),
    dma_transpose_sbuf=_carried(V3.dma_transpose_sbuf, 3),
    gpsimd_dma=_carried(V3.gpsimd_dma, 3),
    hbm_share=_inferred(587, "B/ns", "arch3: 4.7 TB/s over 8 cores"),
    pair_rate=_inferred(960, "B/ns", "v3 scaled by the rate of the DMA engines"),
    launch=_carried(V3.launch, 3),
    launch_pair=_carried(V3.launch_pair, 3),
)

HARDWARE = {2: V2, 3: V3, 4: V4}
