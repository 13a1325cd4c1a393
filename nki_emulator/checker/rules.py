"""The rules of the NKI 0.6 language that can be checked without running a kernel.

One table: messages, ``--json`` and the printed rule list (``--rules``) all come from it. An id that
starts with E is an error, with W a warning: legal in 0.6 and announced to go away.

Where the public documents contradict each other the checker takes what all of them allow; the
sources say which page a rule is from, as in `rulebook`. "Public kernels" is aws-neuron/nki-library: a construct
that none of its kernels uses and no document mentions is refused, because nobody has seen it
compile.
"""

from dataclasses import dataclass

from ..rulebook.pages import (
    ACCESS_PATTERNS,
    GUIDE,
    ISA,
    LANGUAGE,
    MIGRATION,
    NKI,
    RELEASES,
    SHARED,
    TILING,
    TRAINIUM1,
)

CENSUS = "none: no document and no public kernel shows it"


@dataclass(frozen=True)
class Rule:
    """id; title: what is refused; allowed: what may stand there; fix: what to do; source."""

    id: str
    title: str
    allowed: str
    fix: str
    source: str

    @property
    def is_error(self):
        return self.id.startswith("E")


TABLE = (
    # --- kernel signatures
    Rule(
        "E01-keyword-only",
        "keyword-only parameters",
        "parameters are positional, those with defaults last",
        "remove the `*`",
        f"{MIGRATION}: 0.2 to 0.3, Remove keyword-only argument separator",
    ),
    Rule(
        "E02-is",
        "`is` and `is not`",
        "comparisons are by value: == and !=",
        "write == or !=, also for None",
        f"{MIGRATION}: 0.2 to 0.3, Replace is / is not",
    ),
    Rule(
        "E03-list-argument",
        "a list as a kernel argument",
        "kernel arguments are tensors, None, bool, int, float, str, tuples and NKIObjects",
        "take a tuple",
        f"{MIGRATION}: 0.2 to 0.3, Replace list kernel arguments with tuples",
    ),
    # --- enums
    Rule(
        "E04-enum-value",
        "a number or string where an enum member is required",
        "only members of the enum are accepted",
        "name the member",
        f"{MIGRATION}: 0.2 to 0.3, Integer enum constants no longer supported",
    ),
    Rule(
        "E04-wrong-enum",
        "a member of another enum",
        "only members of the parameter's own enum are accepted",
        "name a member of that enum",
        f"{ISA}: the instruction",
    ),
    Rule(
        "E04-buffer-name",
        "a string or number as a buffer",
        "buffers are nl.sbuf, nl.psum, nl.private_hbm, nl.shared_hbm and nl.hbm",
        "pass the buffer object",
        f"{MIGRATION}: 0.2 to 0.3, String buffer names no longer supported",
    ),
    Rule(
        "E04-enum-comparison",
        "an operator other than == and != on an enum, or an enum compared with a number",
        "enum members are compared with == and != to members of their enum",
        "compare with each member that matters",
        f"{GUIDE}: Enumerations; {MIGRATION}: 0.2 to 0.3, Integer enum constants",
    ),
    # --- names and arguments of the API
    Rule(
        "E05-unknown-name",
        "a name that NKI 0.6 does not have",
        "only names of the API reference exist",
        "use a documented name",
        f"{NKI}: the signatures of nki, {ISA} and {LANGUAGE}",
    ),
    Rule(
        "E05-unknown-argument",
        "a keyword that the function does not take",
        "keywords are the parameters of the 0.6 signature",
        "remove or rename it",
        f"{NKI}: the signatures of nki, {ISA} and {LANGUAGE}",
    ),
    Rule(
        "E05-too-many-arguments",
        "more positional arguments than the function takes",
        "arguments bind to the 0.6 signature",
        "pass only its parameters",
        f"{NKI}: the signatures of nki, {ISA} and {LANGUAGE}",
    ),
    Rule(
        "E05-missing-argument",
        "a required argument is missing",
        "arguments bind to the 0.6 signature; every nki.isa instruction takes its dst first",
        "pass it",
        f"{NKI}: the signatures of nki, {ISA} and {LANGUAGE}",
    ),
    Rule(
        "E05-repeated-argument",
        "an argument given twice",
        "arguments bind to the 0.6 signature",
        "pass it once",
        f"{NKI}: the signatures of nki, {ISA} and {LANGUAGE}",
    ),
    Rule(
        "E06-neuronxcc",
        "the namespace neuronxcc in a kernel",
        "kernels use nki, nki.language, nki.isa and nki.collectives",
        "import nki.* instead",
        f"{MIGRATION}: 0.3 to 0.4, neuronxcc.nki.* inside kernels",
    ),
    Rule(
        "E07-beta-name",
        "a name of the beta (NKI 0.1) that is gone",
        "NKI 0.2 and later do not have it",
        "use its replacement",
        f"{MIGRATION}: 0.1 to 0.2, Key migration items",
    ),
    Rule(
        "E07-beta-argument",
        "an argument of the beta (NKI 0.1) that is gone",
        "NKI 0.2 and later do not take it",
        "remove it",
        f"{MIGRATION}: 0.1 to 0.2, Key migration items",
    ),
    # --- tensors
    Rule(
        "E08-return-buffer",
        "a kernel returns a tensor that is not in shared HBM",
        "returned tensors are allocated with buffer=nl.shared_hbm",
        "copy the result to a tensor in nl.shared_hbm and return that",
        f"{MIGRATION}: 0.2 to 0.3, Output tensors must use nl.shared_hbm",
    ),
    Rule(
        "E09-dma-psum",
        "a DMA that reads or writes PSUM",
        "DMA moves data between HBM and SBUF",
        "copy between PSUM and SBUF with nisa.tensor_copy",
        f"{MIGRATION}: 0.2 to 0.3, nisa.dma_copy reading from PSUM",
    ),
    Rule(
        "E10-memset-type",
        "memset of an integer tensor with a float",
        "the value is of the tensor's class of dtype",
        "write an integer",
        f"{MIGRATION}: 0.2 to 0.3, nisa.memset strict type matching",
    ),
    Rule(
        "E10-memset-packed",
        "memset of a packed (x4) tensor with anything but 0",
        "a packed tensor can only be filled with 0",
        "fill with 0, or load the packed values from HBM",
        f"{MIGRATION}: 0.2 to 0.3, nisa.memset x4 packed type restriction",
    ),
    Rule(
        "E11-hwdge-cast",
        "a hardware-DGE copy between two dtypes",
        "dge_mode.hwdge moves bytes: both sides have one dtype",
        "use dge_mode.swdge or dge_mode.none to cast, or .view() to reinterpret",
        f"{MIGRATION}: 0.2 to 0.3, nisa.dma_copy dge_mode type matching",
    ),
    Rule(
        "E12-transpose-shape",
        "dma_transpose into a tensor of another shape",
        "dst has exactly the transposed shape of src, rank included",
        "allocate dst in that shape",
        f"{MIGRATION}: 0.3 to 0.4, nisa.dma_transpose",
    ),
    Rule(
        "E12-transpose-axes",
        "dma_transpose with a permutation it does not have",
        "the permutations are (1, 0), (2, 1, 0) and (3, 1, 2, 0)",
        "reshape so that one of them does it",
        f"{ISA}: dma_transpose",
    ),
    Rule(
        "E12-transpose-hwdge",
        "a hardware-DGE dma_transpose of a tile that it cannot transpose",
        "hwdge takes 2-byte dtypes, a last axis up to 128, and a first axis of 16 (2-D) or of 1, "
        "2, 4, 8 or 16 whose product with the last but one is a multiple of 16 (3-D, 4-D)",
        "leave dge_mode out, or transpose smaller tiles",
        f"{ISA}: dma_transpose",
    ),
    Rule(
        "E13-reshape-count",
        "a reshape that changes the number of elements",
        "a view has the elements of its tensor",
        "correct the shape",
        f"{MIGRATION}: 0.4 to 0.5, NkiTensor.reshape",
    ),
    Rule(
        "E13-reshape-partitions",
        "a reshape that changes the partition axis of an on-chip tensor",
        "the first axis of an SBUF or PSUM tensor keeps its size",
        "reshape free axes only",
        f"{LANGUAGE}: NkiTensor.reshape",
    ),
    # --- removed
    Rule(
        "E14-removed-function",
        "a function that was removed",
        "NKI 0.6 does not have it",
        "use its replacement",
        f"{MIGRATION}: 0.3 to 0.4, Removed APIs",
    ),
    Rule(
        "E14-removed-argument",
        "an argument that was removed",
        "NKI 0.6 does not take it",
        "use its replacement",
        f"{MIGRATION}: 0.2 to 0.3, API breaking changes",
    ),
    Rule(
        "E14-argument-order",
        "positional arguments in the order of NKI 0.2",
        "the order changed in NKI 0.3",
        "pass them by keyword",
        f"{MIGRATION}: 0.2 to 0.3, API breaking changes",
    ),
    # --- wrappers of nki.language that do not compile
    Rule(
        "E15-no-device-function",
        "an nki.language function that no engine can compute",
        "divide, mod and fmod do not compile",
        "multiply by nl.reciprocal, or compute the remainder from a rounded quotient",
        f"{RELEASES}: 0.4.0, Known Issues (NKI Language)",
    ),
    Rule(
        "E15-scalar-power",
        "nl.power of a tile with a number",
        "nl.power takes two tiles of one shape",
        "use nl.square, nl.sqrt, or nisa.tensor_scalar with op0=nl.power",
        f"{RELEASES}: 0.4.0, Known Issues (NKI Language)",
    ),
    Rule(
        "E15-matmul",
        "nl.matmul without transpose_x=True",
        "only transpose_x=True compiles",
        "pass x with the contraction on partitions and transpose_x=True, or use nisa.nc_matmul",
        f"{RELEASES}: 0.4.0, Known Issues (NKI Language)",
    ),
    Rule(
        "E15-rsqrt-psum",
        "nl.rsqrt of a PSUM tensor",
        "nl.rsqrt runs on GpSimd, which cannot read PSUM",
        "use nisa.activation(op=nl.rsqrt), or copy to SBUF first",
        f"{MIGRATION}: 0.4 to 0.5, nki.language.rsqrt",
    ),
    Rule(
        "E15-broadcast",
        "implicit broadcasting in an nki.language operation",
        "both tiles have one shape",
        "broadcast a view with .broadcast() or nl.broadcast_to first",
        f"{RELEASES}: 0.4.0, Known Issues (NKI Language)",
    ),
    Rule(
        "E15-random-seed",
        "nl.random_seed of a number",
        "the seed is a [1, 1] tile",
        "write the seed to a tile with nisa.memset",
        f"{RELEASES}: 0.4.0, Known Issues (NKI Language)",
    ),
    # --- classes and dictionaries
    Rule(
        "E16-class-base",
        "a class of a kernel with another base",
        "classes inherit from nl.NKIObject and nothing else, or from Enum",
        "make nl.NKIObject the only base",
        f"{GUIDE}: Class Support",
    ),
    Rule(
        "E16-dict-key",
        "a dictionary key that is not a string",
        "dictionaries have string keys only",
        "use strings, or a list or tuple",
        f"{GUIDE}: NKI Values",
    ),
    Rule(
        "E17-nested-jit",
        "an @nki.jit function used inside a kernel",
        "only the top-level kernel is decorated",
        "remove the decorator, and apply nki.jit where it is launched alone",
        f"{MIGRATION}: 0.1 to 0.2, Remove nki.jit decorator on sub-kernels",
    ),
    Rule(
        "E17-platform-target",
        "nki.jit(platform_target=...)",
        "the target comes from NEURON_PLATFORM_TARGET_OVERRIDE",
        "remove the argument and set that variable",
        f"{MIGRATION}: 0.2 to 0.3, nki.jit(platform_target=...)",
    ),
    # --- registers and dynamic loops
    Rule(
        "E18-register-in-condition",
        "a register in a Python condition",
        "a register has no value while the kernel is compiled",
        "use nl.while_loop, or select on the device",
        f"{ISA}: VirtualRegister",
    ),
    Rule(
        "E18-register-conversion",
        "a register in int(), range() or another conversion",
        "a register has no value while the kernel is compiled",
        "use nl.fori_loop for loops; keep the value on the device",
        f"{ISA}: VirtualRegister",
    ),
    Rule(
        "E18-register-arithmetic",
        "Python arithmetic or comparison on a register",
        "a register is read by .ap(scalar_offset=...), changed by register_move and register_load",
        "compute in an SBUF tile and register_load the result",
        f"{MIGRATION}: 0.5 to 0.6, Rules for migrated loops",
    ),
    Rule(
        "E18-loop-register-write",
        "a write to the register of a counted loop",
        "the loop register is read-only",
        "use a register or tile of your own",
        f"{MIGRATION}: 0.5 to 0.6, Rules for migrated loops",
    ),
    Rule(
        "E18-loop-in-no-reorder",
        "a dynamic loop inside nl.no_reorder()",
        "fori_loop, while_loop and dynamic_range stand outside, also those in called functions",
        "put the no_reorder block inside the loop body",
        f"{LANGUAGE}: no_reorder",
    ),
    Rule(
        "E18-fori-body-result",
        "a fori_loop body that returns a value",
        "the body returns nothing",
        "carry state in SBUF or HBM and drop the value",
        f"{MIGRATION}: 0.5 to 0.6, Rules for migrated loops",
    ),
    Rule(
        "E18-while-body-result",
        "a while_loop body that does not return the next condition register",
        "every path of the body returns the register",
        "return the register",
        f"{MIGRATION}: 0.5 to 0.6, Rules for migrated loops",
    ),
    Rule(
        "E18-loop-body",
        "a loop body that is not a function of one parameter",
        "the body is called with the loop register alone",
        "pass a function of one parameter that closes over the rest",
        f"{LANGUAGE}: fori_loop",
    ),
    Rule(
        "E18-loop-step",
        "a loop step that is not a positive compile-time integer",
        "dynamic loops count up by a fixed step",
        "use a positive integer",
        f"{MIGRATION}: 0.5 to 0.6, Rules for migrated loops",
    ),
    Rule(
        "E18-loop-bound",
        "a loop bound that is neither an integer nor a register",
        "bounds of fori_loop are integers or registers, the start of while_loop is a register",
        "load the value into a register with nisa.register_load",
        f"{LANGUAGE}: fori_loop, while_loop",
    ),
    Rule(
        "E18-loop-tensor",
        "a tensor of a dynamic loop body used after the loop",
        "tensors that are declared in a loop body end with it",
        "declare the tensor before the loop",
        f"{MIGRATION}: 0.5 to 0.6, Rules for migrated loops",
    ),
    # --- partitions
    Rule(
        "E19-partitions",
        "an on-chip tensor with more than 128 partitions",
        "the first axis of an SBUF or PSUM tensor is at most 128",
        "loop over tiles of 128",
        f"{TILING}: Tile size considerations",
    ),
    Rule(
        "E19-partition-step",
        "an access that steps over partitions",
        "an on-chip access covers consecutive partitions; the first pair of .ap() has the stride "
        "of one partition",
        "step along a free axis, or move rows by DMA",
        f"{ACCESS_PATTERNS}: Restriction on SBUF/PSUM Tensors",
    ),
    Rule(
        "E19-start-partition",
        "an operand of an engine that starts at a partition it cannot start at",
        "up to 32 partitions start at 0, 32, 64 or 96, up to 64 at 0 or 64, more at 0",
        "align the rows to 32 partitions, or move them by DMA",
        f"{TRAINIUM1}: Accessing SBUF/PSUM tensors using compute engines",
    ),
    # --- operands of single instructions
    Rule(
        "E20-buffer",
        "an operand in a memory that the instruction cannot reach",
        "each instruction has its memories",
        "copy the operand there first",
        f"{ISA}: the instruction, Memory types",
    ),
    Rule(
        "E20-two-psum",
        "two operands that cannot both be in PSUM",
        "at most one of the two is in PSUM",
        "copy one to SBUF with nisa.tensor_copy",
        f"{ISA}: the instruction, Memory types",
    ),
    Rule(
        "E20-engine",
        "an engine that cannot run the instruction",
        "each instruction has its engines",
        "leave engine out, or name one of them",
        f"{ISA}: the instruction",
    ),
    Rule(
        "E20-operation",
        "an operation that the instruction cannot do",
        "each operand of operation has its list",
        "use one of them, or another instruction",
        f"{SHARED}: Supported Math Operators, Supported Activation Functions",
    ),
    Rule(
        "E20-size",
        "a tile larger or smaller than the instruction takes, or tiles that do not fit together",
        "each instruction has its tile sizes",
        "split the tile, or correct the shape",
        f"{ISA}: the instruction, Tile size",
    ),
    Rule(
        "E20-dtype",
        "dtypes that the instruction does not take",
        "each instruction has its dtypes",
        "allocate the tile in the right dtype",
        f"{ISA}: the instruction, Data types",
    ),
    # --- Python outside the subset
    Rule(
        "E21-lambda",
        "a lambda",
        "functions are written with def",
        "write a def",
        CENSUS,
    ),
    Rule(
        "E21-comprehension",
        "a comprehension or generator expression",
        "lists are built with a loop and append",
        "write the loop",
        CENSUS,
    ),
    Rule(
        "E21-try",
        "try",
        "nothing is caught in a kernel",
        "test the condition with if before",
        CENSUS,
    ),
    Rule(
        "E21-raise",
        "raise",
        "a kernel refuses its arguments with assert",
        "write assert condition, message",
        CENSUS,
    ),
    Rule(
        "E21-walrus",
        "an assignment expression",
        "assignments are statements",
        "assign on a line of its own",
        CENSUS,
    ),
    Rule(
        "E21-yield",
        "yield",
        "functions are inlined and return once",
        "return a list, or pass a function",
        CENSUS,
    ),
    Rule(
        "E21-global",
        "global or nonlocal",
        "a kernel is a pure function of its arguments",
        "pass and return the value",
        f"{GUIDE}: Kernel Caching",
    ),
    Rule(
        "E21-del",
        "del",
        "the compiler ends the life of a name by itself",
        "remove the statement; use list.remove or dict.pop for elements",
        CENSUS,
    ),
    Rule(
        "E21-match",
        "match",
        "choices are written with if, elif and else",
        "write if and elif",
        CENSUS,
    ),
    Rule(
        "E21-async",
        "async code",
        "a kernel runs in one pass",
        "remove async and await",
        CENSUS,
    ),
    Rule(
        "E21-star",
        "* or ** in a signature, a call or an assignment",
        "parameters and arguments are named one by one",
        "spell them out",
        CENSUS,
    ),
    Rule(
        "E21-positional-only",
        "positional-only parameters",
        "parameters are positional or by name",
        "remove the `/`",
        CENSUS,
    ),
    Rule(
        "E21-with",
        "a with block other than nl.no_reorder()",
        "`with nl.no_reorder():` is the only one",
        "remove the block",
        f"{LANGUAGE}: no_reorder",
    ),
    Rule(
        "E21-decorator",
        "a decorator",
        "decorators are @nki.jit on a kernel, @dataclass on a class, @staticmethod on a method",
        "call the function directly",
        CENSUS,
    ),
    Rule(
        "E21-nested-class",
        "a class inside a function",
        "classes stand at module level",
        "move it there",
        CENSUS,
    ),
    Rule(
        "E21-import",
        "an import inside a function",
        "imports stand at module level",
        "move it there",
        CENSUS,
    ),
    Rule(
        "E21-set",
        "a set",
        "containers are tuples, lists and dictionaries",
        "use a tuple or list",
        f"{GUIDE}: NKI Values",
    ),
    Rule(
        "E21-loop-else",
        "else on a loop",
        "loops have a body only",
        "set a flag in the loop and test it after",
        CENSUS,
    ),
    Rule(
        "E21-matmul-operator",
        "the operator @",
        "matrices are multiplied by nisa.nc_matmul",
        "call nisa.nc_matmul",
        CENSUS,
    ),
    Rule(
        "E21-literal",
        "a literal of a type that NKI does not have",
        "values are None, bool, 32-bit int, 32-bit float, str and tensors",
        "use one of them",
        f"{GUIDE}: NKI Values",
    ),
    Rule(
        "E22-builtin",
        "a Python builtin that kernels do not have",
        "builtins are bool, dict, divmod, float, int, isinstance, len, list, max, min, print, "
        "range, slice, str and tuple",
        "write it out with those",
        CENSUS,
    ),
    Rule(
        "E22-library",
        "a host library in a kernel",
        "math.ceil, floor, gcd, sqrt, pi and inf are known to compile; NumPy is for "
        "nl.shared_constant",
        "compute it on the host and pass it as an argument",
        CENSUS,
    ),
    # --- purity and values
    Rule(
        "E23-global-change",
        "a kernel changes a value at module level",
        "a kernel is a pure function of its arguments",
        "return the value, or build it inside the kernel",
        f"{GUIDE}: Kernel Caching",
    ),
    Rule(
        "E23-changing-global",
        "a kernel reads a module-level value that other code changes",
        "a compiled kernel is cached by its arguments alone",
        "pass the value as an argument",
        f"{GUIDE}: Kernel Caching",
    ),
    Rule(
        "E24-tensor-value",
        "the elements of a tensor in Python control flow",
        "shape, dtype and strides are known at compile time, elements are not",
        "select on the device, or branch on the shape",
        f"{GUIDE}: Tensor Values",
    ),
    # --- deprecated
    Rule(
        "W01-range-alias",
        "affine_range, sequential_range, static_range",
        "all three are range since every static loop is unrolled",
        "write range",
        f"{LANGUAGE}: affine_range",
    ),
    Rule(
        "W02-dynamic-range",
        "dynamic_range",
        "deprecated in NKI 0.6",
        "move the loop body into a function and call nl.fori_loop",
        f"{MIGRATION}: 0.5 to 0.6, Deprecated loops",
    ),
    Rule(
        "W03-while-register",
        "while with a register",
        "deprecated in NKI 0.6, and not accepted by the tracing front-end",
        "move the loop body into a function and call nl.while_loop",
        f"{MIGRATION}: 0.5 to 0.6, Deprecated loops",
    ),
    Rule(
        "W04-tile-size-name",
        "a deprecated name of nl.tile_size",
        "deprecated since NKI 0.4, because the name is misleading",
        "use the new name",
        f"{LANGUAGE}: tile_size",
    ),
    Rule(
        "W05-engine-constant",
        "nisa.vector_engine and its like",
        "deprecated in favour of the enum nisa.engine",
        "use the enum member",
        f"{ISA}: engine",
    ),
    Rule(
        "W06-activation-reduce",
        "nisa.activation_reduce",
        "kept for backward compatibility only",
        "use nisa.activation with reduce_op, reduce_res and reduce_cmd.reset_reduce",
        f"{ISA}: activation_reduce",
    ),
    Rule(
        "W07-scale-dtype",
        "MX scales in uint8",
        "uint8 is the old dtype of scales",
        "allocate the scales in nl.float8_e8m0fnu",
        f"{ISA}: quantize_mx",
    ),
    Rule(
        "W08-jit-mode",
        "nki.jit(mode=...)",
        "ignored since NKI 0.3: the framework is found from the arguments",
        "remove the argument",
        f"{MIGRATION}: 0.2 to 0.3, nki.jit(mode=...)",
    ),
)

RULES = {rule.id: rule for rule in TABLE}


def rules_text():
    """The table as Markdown, one row a rule."""
    rows = ["| rule | refused | allowed | what to do | source |", "|---|---|---|---|---|"]
    for rule in TABLE:
        rows.append(f"| {rule.id} | {rule.title} | {rule.allowed} | {rule.fix} | {rule.source} |")
    return "\n".join(rows)
