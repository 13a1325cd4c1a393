"""What one instruction costs: how long it occupies its engine, and how much later its result is
there.

Times are nanoseconds. The formulas are those of the NKI 2.26 reference (written for NeuronCore-v2)
with the performance modes of the Trainium2 and Trainium3 guides on top. Where a published
measurement contradicts a documented mode there are two answers: the *literal* one follows the
measurement, the *optimistic* one the documentation.
"""

from dataclasses import dataclass

from ..regions import MemoryRegion

PSUM, SBUF = MemoryRegion.psum, MemoryRegion.sbuf
HALF = ("bfloat16", "float16")

# Bytes of a packet by default (neuron-runtime, compute and communication overlap).
PACKET = 4096
# Vector engine instructions that take two cycles an element on every generation (isa226; voyager
# confirms the scan on trn2).
TWO_CYCLES = ("tensor_tensor_scan", "tensor_scalar_cumulative")
# Elements a cycle where a guide says so (arch3: exponential is 4 times activation(exp); quantize_mx
# 4 elements a cycle).
FOUR_A_CYCLE = ("exponential", "quantize_mx")


@dataclass(frozen=True, slots=True)
class Cost:
    """``occupancy`` of the engine and ``latency`` from its end until the result can be used, ns."""

    occupancy: float
    latency: float


class CostModel:
    """Costs of a generation, literal or optimistic."""

    def __init__(self, hardware, optimistic=False):
        self.hardware = hardware
        self.optimistic = optimistic
        self._stationary = None

    def compute(self, step):
        """Cost of an instruction of a compute engine."""
        hardware = self.hardware
        engine = step.engine
        if engine == "sequencer":
            return Cost(float(hardware.register), 0.0)
        if engine == "tensor":
            return self._tensor(step)
        if engine == "vector":
            cycles = max(hardware.minimum_interval, self._vector_cycles(step))
            if step.reads_accumulator:
                cycles += hardware.accumulator_read
            return Cost(cycles / hardware.vector_clock, float(hardware.vector_latency))
        if engine == "scalar":
            cycles = max(hardware.minimum_interval, self._scalar_cycles(step))
            if step.reads_accumulator:
                cycles += hardware.accumulator_read
            return Cost(cycles / hardware.scalar_clock, float(hardware.scalar_latency))
        return Cost(
            self._gpsimd_cycles(step) / hardware.gpsimd_clock, float(hardware.gpsimd_latency)
        )

    # Tensor engine.

    def _tensor(self, step):
        hardware = self.hardware
        if step.op == "nc_transpose":
            data = step.reads[0]
            rows, columns = data.shape[0], data.elements // data.shape[0]
            factor = 2 if data.dtype == "float32" else 1  # arch2: transposes in float32 are 2x
            stationary, moving, streamed = data, rows, columns
        else:
            stationary, source = step.reads[0], step.reads[1]
            moving = source.elements // source.shape[0]
            streamed = stationary.elements // stationary.shape[0]
            if step.details.get("perf_mode") == "double_row":
                moving, streamed = moving // 2, streamed // 2
            factor = 1
            if "float32" in (stationary.dtype, source.dtype):
                factor = 2 if step.details.get("transpose") else float(hardware.matmul_float32)
        cycles = max(float(hardware.matmul_minimum), moving) * factor
        key = (stationary.storage, stationary.offset, stationary.shape, step.details.get("row"))
        if key != self._stationary and not self.optimistic:
            cycles += float(hardware.load_stationary) * streamed / 128
        self._stationary = key
        slow = factor > 2
        latency = hardware.tensor_latency_float32 if slow else hardware.tensor_latency
        return Cost(cycles / hardware.tensor_clock, float(latency))

    # Vector engine.

    def _vector_cycles(self, step):
        elements = step.elements
        op = step.op
        if op in ("tensor_copy", "tensor_scalar", "memset"):
            return elements / self._fast_mode(step)
        if op in ("tensor_tensor", "scalar_tensor_tensor"):
            return elements * self._two_inputs(step)
        if op == "tensor_copy_predicated":
            return elements * (1 if self._touches_psum(step) else 2)
        if op == "reciprocal":
            return elements * self.hardware.reciprocal_interval
        if op == "bn_aggr":
            return elements * 13 / 3
        if op in TWO_CYCLES:
            return elements * 2
        if op in FOUR_A_CYCLE:
            return elements / 4
        return elements

    def _fast_mode(self, step):
        """Elements a cycle of copies, fills and tensor-scalar operations."""
        if not self.hardware.vector_fast_modes:
            return 2 if step.op == "memset" and step.writes[0].dtype in HALF else 1
        operands = step.writes + step.reads[:1]
        half = all(operand.dtype in HALF for operand in operands)
        if any(operand.buffer is PSUM for operand in operands):
            # arch2 says 2 with one side in PSUM; voyager measured 1.
            return 2 if half and self.optimistic else 1
        if half and all(operand.dense for operand in operands):
            return 4
        # arch2 gives 2 to 16-bit types that are not dense; voyager also measured 2 in float32.
        return 2

    def _two_inputs(self, step):
        """Cycles an element of instructions with two tile inputs."""
        inputs = step.reads[:2]
        psum = any(operand.buffer is PSUM for operand in inputs)
        half = all(operand.dtype in HALF for operand in inputs)
        if not self.hardware.vector_fast_modes:
            return 1 if psum or half else 2
        return 0.5 if half and not psum else 1

    def _touches_psum(self, step):
        return any(operand.buffer is PSUM for operand in step.reads[:2])

    # The others.

    def _scalar_cycles(self, step):
        if step.op in ("tensor_copy", "tensor_scalar"):
            operands = step.writes + step.reads[:1]
            if all(operand.dtype in HALF for operand in operands):
                return step.elements / self.hardware.scalar_fast
        return step.elements

    def _gpsimd_cycles(self, step):
        start = float(self.hardware.gpsimd_start)
        if step.op == "topk":  # stub: 4 n + K
            return 4 * step.details.get("count", step.elements) + step.elements
        return start + step.elements


@dataclass(frozen=True, slots=True)
class Transfer:
    """A DMA: ``issue`` on its queue, ``time`` in the DMA engines (ns), bytes of HBM touched."""

    issue: float
    time: float
    hbm_read: int
    hbm_written: int
    bytes: int


def transfer(step, hardware, rate):
    """Cost of a DMA at ``rate`` bytes a nanosecond for all engines together."""
    engines = float(hardware.dma_engines)
    moved = sum(operand.bytes for operand in step.writes)
    sources = [operand for operand in step.reads if operand.bytes]
    run = min(operand.run for operand in (*step.writes, *sources))
    descriptors = max(1, moved // run)
    # A long run is cut into packets, which several engines can share.
    packets = max(1, -(-run // PACKET)) * descriptors
    busy = min(engines, packets)
    time = max(moved / (rate * busy / engines), descriptors * hardware.dma_descriptor / busy)
    if step.op == "dma_transpose":
        # arch2, DMA transpose: 90 % of the DMA rate from HBM, 50 % within SBUF.
        from_hbm = any(not operand.on_chip for operand in sources)
        time = moved / (rate * (0.9 if from_hbm else 0.5))
    read = sum(operand.bytes for operand in sources if not operand.on_chip)
    written = sum(operand.bytes for operand in step.writes if not operand.on_chip)
    return Transfer(float(hardware.dma_issue), float(time), read, written, moved)
