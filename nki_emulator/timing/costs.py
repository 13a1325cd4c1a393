"""What one instruction costs: how long it occupies its engine, and how much later its result is
there.

Times are nanoseconds. The formulas are those of the NKI 2.26 reference (written for NeuronCore-v2)
with the performance modes of the Trainium2 and Trainium3 guides on top; those of the vector, scalar
and gpsimd engines stand in `formulas`. Where a published measurement contradicts a documented rate
there are two answers: the *literal* one follows the measurement, the *optimistic* one the
documentation.
"""

from dataclasses import dataclass

from .formulas import FORMULAS


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
        if engine == "sequencer" or step.op == "core_barrier":
            # Registers and semaphores are the sequencer's, whatever engine it belongs to.
            return Cost(float(hardware.register), 0.0)
        if engine == "tensor":
            return self._tensor(step)
        minimum = hardware.minimum_interval
        if step.op == "tensor_copy" and step.reads_index:
            minimum = hardware.dynamic_interval
        cycles = FORMULAS[engine][step.op].cycles(step, hardware, self.optimistic)
        cycles = max(minimum, cycles)
        if step.reads_accumulator:
            cycles += hardware.accumulator_read
        clock = getattr(hardware, f"{engine}_clock")
        return Cost(cycles / clock, float(getattr(hardware, f"{engine}_latency")))

    def _tensor(self, step):
        """nc_matmul (also as a transpose), nc_matmul_mx (4 values an element in the same time) and
        nc_transpose: arch1 says max(64, columns that stream through), isa226 does with fewer than
        64 where the stationary tile has fewer columns."""
        hardware = self.hardware
        if step.op == "nc_transpose":
            stationary = step.reads[0]
            moving, columns = stationary.shape[0], stationary.elements // stationary.shape[0]
            transpose, float32 = True, stationary.dtype == "float32"
        else:
            stationary, source = step.reads[:2]
            moving = source.elements // source.shape[0]
            columns = stationary.elements // stationary.shape[0]
            if step.details.get("perf_mode") == "double_row":
                # arch2: both rows of a pair in the time of one.
                moving, columns = moving // 2, columns // 2
            transpose = step.details.get("transpose")
            float32 = "float32" in (stationary.dtype, source.dtype)
        factor = 1.0
        if float32:
            # A transpose in float32 takes half the time of a product: arch2, built-in transpose;
            # on v2 as a product with an operand of ones and zeros (isa226, is_moving_onezero).
            factor = float(hardware.matmul_float32) / (2 if transpose else 1)
        minimum = float(hardware.matmul_minimum)
        cycles = max(min(minimum, columns) if self.optimistic else minimum, moving) * factor
        key = (stationary.storage, stationary.offset, stationary.shape, step.details.get("row"))
        if key != self._stationary and not self.optimistic:
            # Documented as hidden behind the product before it; the literal bound hides nothing.
            cycles += float(hardware.load_stationary) * columns / 128
        self._stationary = key
        slow = float32 and not transpose
        latency = hardware.tensor_latency_float32 if slow else hardware.tensor_latency
        return Cost(cycles / hardware.tensor_clock, float(latency))


@dataclass(frozen=True, slots=True)
class Transfer:
    """A DMA: ``issue`` on its queue, ``time`` in the DMA engines (ns), bytes of HBM touched.

    ``bytes`` go through the DMA engines: those read or those written, whichever are more.
    """

    issue: float
    time: float
    hbm_read: int
    hbm_written: int
    bytes: int


def transfer(step, hardware, rate):
    """Cost of a DMA at ``rate`` bytes a nanosecond for all engines together.

    Memory that lies together is moved by one descriptor, so a gathered row is one at least. The
    engines share the descriptors, and the packets into which a long one is cut.
    """
    target = step.writes[0]
    # What is left out are tiles of indices.
    sources = [operand for operand in step.reads if operand.elements == target.elements]
    moved = max(target.bytes, sum(operand.bytes for operand in sources))
    descriptors = max(target.descriptors, sum(operand.descriptors for operand in sources))
    engines = float(hardware.dma_engines)
    packet = min(moved / descriptors, hardware.dma_packet)
    time = max(
        max(moved / engines, packet) / (rate / engines),
        max(descriptors / engines, 1.0) * hardware.dma_descriptor,
    )
    if step.op == "dma_transpose":
        from_hbm = any(not operand.on_chip for operand in sources)
        share = hardware.dma_transpose_hbm if from_hbm else hardware.dma_transpose_sbuf
        time = max(time, moved / (rate * share))
    read = sum(operand.bytes for operand in sources if not operand.on_chip)
    written = 0 if target.on_chip else target.bytes
    return Transfer(float(hardware.dma_issue), float(time), read, written, moved)
