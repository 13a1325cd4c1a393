"""Rules of a launch: arguments, target, results, schedule, and what works in a kernel only."""

from .pages import (
    GUIDE,
    ISA,
    LANGUAGE,
    LNC,
    MIGRATION,
    NKI,
    SCHEDULING,
    SHARED,
    SIMULATOR,
    TILE_SIZE,
    Rule,
    own,
)  # fmt: skip

RULES = {
    "argument-device": Rule(
        "array arguments are NumPy arrays or torch tensors on the CPU",
        own("the emulator has no device to copy from"),
    ),
    "argument-dtype": Rule(
        "an array argument has an NKI dtype; there are no 64-bit types",
        f"{SHARED}: Supported Data Types",
    ),
    "argument-list": Rule(
        "a kernel argument is not a list; a tuple is allowed",
        f"{MIGRATION}: Replace list kernel arguments with tuples",
    ),
    "argument-shape": Rule(
        "an array argument has at least one dimension, and no empty one",
        f"{LANGUAGE}: NkiTensor.__init__ (positive sizes), __getitem__ (at least 1-D in HBM)",
    ),
    "argument-type": Rule(
        "an argument is a tensor, None, a 32-bit number, a string, an enum member, a function, a "
        "tuple, a dict with string keys or an instance of an NKIObject class",
        f"{GUIDE}: NKI Values; {GUIDE}: Class Support",
    ),
    "arguments": Rule(
        "the arguments of a call fit the kernel's signature",
        own("Python's rule for every call"),
    ),
    "depends-on": Rule(
        "producers of depends_on are instructions that were issued earlier",
        f"{ISA}: NkiInstruction.depends_on (it says nothing of the order of issue, which is the "
        "order in which the emulator runs)",
    ),
    "depends-on-loop": Rule(
        "depends_on joins two instructions in the same iteration of the same dynamic loop, or "
        "outside all of them",
        f"{ISA}: NkiInstruction.depends_on",
    ),
    "deprecated": Rule(
        "(warning) a name that goes away: dynamic_range, affine_range, sequential_range, "
        "static_range, tile_size.psum_fmax, tile_size.total_available_sbuf_size",
        f"{MIGRATION}: Deprecated: dynamic nl.dynamic_range and while loops; {LANGUAGE}: "
        f"affine_range; {TILE_SIZE}: psum_fmax",
    ),
    "device-print": Rule(
        "device_print takes a constant string and a tensor in SBUF or HBM",
        f"{LANGUAGE}: device_print",
    ),
    "grid-axis": Rule(
        "a launch grid has one axis, 0: the number of cores",
        f"{LNC}: Launching a kernel on multiple cores",
    ),
    "jit-arguments": Rule(
        "nki.jit takes no platform_target (an error since 0.3) and, beside the ignored mode, no "
        "other argument",
        f"{MIGRATION}: nki.jit(platform_target=...), nki.jit(mode=...)",
    ),
    "lnc": Rule(
        "the number in kernel[...] is 1 or 2",
        f"{NKI}: jit; {LNC}: Launching a kernel on multiple cores",
    ),
    "no-kernel": Rule(
        "instructions and most of nki.language work only while a kernel runs",
        own("an instruction needs the memories and the target of a launch"),
    ),
    "not-implemented": Rule(
        "the emulator implements this name of NKI 0.6",
        own(f"nki.collectives, which the official simulator lacks too ({SIMULATOR}: Known Gaps)"),
    ),
    "precise-fp": Rule(
        "NKI_PRECISE_FP is 0 or 1",
        f"{SIMULATOR}: Precise Floating-Point Mode",
    ),
    "read-only": Rule(
        "an argument that the kernel writes is a writable array",
        own("NumPy's rule; the kernel would change the caller's array"),
    ),
    "return-buffer": Rule(
        "a returned tensor is an argument or was allocated with buffer=nl.shared_hbm",
        f"{MIGRATION}: Output tensors must use nl.shared_hbm",
    ),
    "return-programs": Rule(
        "both programs of an LNC 2 launch return the same tensors",
        f"{LNC}: Final Notes",
    ),
    "return-type": Rule(
        "a kernel returns tensors, tuples or lists of them, or nothing",
        own("the documents show no other result"),
    ),
    "return-unwritten": Rule(
        "every element of a returned tensor has been written",
        f"{SIMULATOR}: Uninitialized Memory Detection",
    ),
    "return-view": Rule(
        "a returned tensor is a whole tensor, in its own order",
        own("the documents return only what nl.ndarray made"),
    ),
    "schedule": Rule(
        "a schedule is a list of pairs (consumer, producer or list of producers) of instruction "
        "names",
        f"{SCHEDULING}: Adding dependency edges",
    ),
    "schedule-name": Rule(
        "every name in a schedule is the name of exactly one instruction of the kernel",
        own(f"{SCHEDULING} says that the compiler checks that a schedule makes sense, not how"),
    ),
    "schedule-order": Rule(
        "a schedule makes no circle with the flow of data, and no edge leads into, out of or "
        "around a dynamic loop",
        f"{SCHEDULING}: Adding dependency edges (a schedule is checked to make sense); {ISA}: "
        "NkiInstruction.depends_on",
    ),
    "target": Rule(
        "the target generation has the instruction, option or second core, and the environment "
        "names a documented target",
        f"{ISA}: the instruction (available on); {NKI}: jit; {SIMULATOR}: Target Platform",
    ),
}
