"""Rules of operands that several instructions share, and of operators and accumulators."""

from .pages import EACH, GUIDE, ISA, LANGUAGE, MIGRATION, SHARED, TRAINIUM1, Rule, own

_OPERATORS = f"{SHARED}: Supported Math Operators for NKI ISA"
_ACTIVATIONS = f"{SHARED}: Supported Activation Functions for NKI ISA"
_ENGINES = f"{TRAINIUM1}: NeuronCore-v2 Compute Engines"
_STREAMING = f"{TRAINIUM1}: Accessing SBUF/PSUM tensors using compute engines"

RULES = {
    "both-psum": Rule(
        "of two input tiles at most one is in PSUM",
        f"{EACH}, Memory types",
    ),
    "buffer-on-chip": Rule(
        "operands of a compute engine are in SBUF or PSUM",
        f"{EACH}; {_ENGINES}",
    ),
    "buffer-sbuf": Rule(
        "operands of this instruction are in SBUF",
        f"{EACH}, Memory types",
    ),
    "enum": Rule(
        "an enum argument is a member that the instruction allows, not a number or a string",
        f"{EACH}; {MIGRATION}: Integer enum constants no longer supported",
    ),
    "flag": Rule(
        "what turns something on or off is True or False",
        EACH,
    ),
    "free-dims": Rule(
        "an access has at most four free dimensions that do not merge",
        _STREAMING,
    ),
    "free-size": Rule(
        "operands have the same number of elements a partition",
        f"{EACH}, Tile size",
    ),
    "gpsimd-psum": Rule(
        "the GpSimd engine does not reach PSUM",
        f"{ISA}: tensor_copy, tensor_tensor; {_ENGINES}",
    ),
    "int32-range": Rule(
        "offsets, multipliers and padding are int32",
        f"{ISA}: iota, affine_select, nonzero_with_count",
    ),
    "integer-dtype": Rule(
        "bitvec operators, and operands that hold bits or indices, have an integer dtype",
        f"{EACH}; {_OPERATORS}",
    ),
    "number-range": Rule(
        "a number is infinite or within the range of float32",
        f"{GUIDE}: NKI Values",
    ),
    "operand-dtype": Rule(
        "an operand has one of the dtypes that the instruction lists for it",
        f"{EACH}, Data types",
    ),
    "operand-type": Rule(
        "a tensor operand is a tensor, a number is a number",
        EACH,
    ),
    "packed-dtype": Rule(
        "x4 packed types go to nc_matmul_mx, dma_copy and tensor_copy only",
        f"{SHARED}: Supported Data Types (footnote 2)",
    ),
    "partition-count": Rule(
        "operands have the same number of partitions",
        f"{EACH}, Tile size",
    ),
    "same-dtype": Rule(
        "operands that are moved bit for bit have one dtype",
        f"{EACH}, Data types",
    ),
    "start-partition": Rule(
        "an access to 1-32 partitions starts at 0, 32, 64 or 96, to 33-64 at 0 or 64, to more at 0",
        _STREAMING,
    ),
    "tile-rank": Rule(
        "a tile has no more dimensions than the instruction allows",
        EACH,
    ),
    "vector-operand": Rule(
        "a vector operand has one element a partition, shape (P, 1)",
        EACH,
    ),
    # Operators.
    "activate2-operators": Rule(
        "activate2 takes six pairs: multiply+add, multiply+subtract, multiply, add, subtract, none",
        f"{ISA}: activate2",
    ),
    "bitvec-range": Rule(
        "an integer operand of a bitvec operator fits in the width of the data",
        own(f"{_OPERATORS} treats elements as bit patterns; a wider pattern has no meaning"),
    ),
    "bitvec-width": Rule(
        "tiles of a bitvec operator have elements of one width",
        own(f"{_OPERATORS} treats elements as bit patterns, without casting"),
    ),
    "operand-unused": Rule(
        "a unary or absent operator comes without an operand (None or 0)",
        f"{ISA}: tensor_scalar (operand0, op1)",
    ),
    "operator": Rule(
        "an operator is a math operator or, for ScalarE, an activation function",
        f"{_OPERATORS}; {_ACTIVATIONS}",
    ),
    "operator-engine": Rule(
        "the engine has the operator: rsqrt on GpSimd (tensor_scalar) or ScalarE (activation), "
        "power on GpSimd, and on ScalarE of trn2 only multiply+add, multiply or add",
        f"{ISA}: tensor_tensor, tensor_scalar; {SHARED}: NKI Engine Selection for Operators "
        "Supported on Multiple Engines",
    ),
    "operator-kind": Rule(
        "the operator is of the kind that the place takes: bitvec, arithmetic, comparison",
        f"{EACH}; {_OPERATORS}",
    ),
    "operator-mix": Rule(
        "op0 and op1 are both bitvec or both arithmetic operators",
        f"{ISA}: tensor_scalar",
    ),
    "operator-reduce": Rule(
        "a reduction uses an operator that the instruction can reduce with",
        f"{EACH}; {SHARED}: Supported Math Operators by NKI ISA (Legal Reduction op)",
    ),
    "operator-target": Rule(
        "abs_max, abs_min, square and relu as math operators need NeuronCore-v4",
        f"{LANGUAGE}: abs_max; release-notes/components/nki.rst: 0.4.0, New Features",
    ),
    "power-exponent": Rule(
        "nl.power of 32-bit integers, which is exact, has exponents that are not negative",
        own(f"{ISA} (tensor_tensor) computes them in integers, which have no such power"),
    ),
    "reverse": Rule(
        "only a binary operator that is there is reversed, and tensor_scalar_reduce reverses none",
        f"{ISA}: tensor_scalar, tensor_scalar_reduce, activate2",
    ),
    # Activation.
    "activation-bias": Rule(
        "before NeuronCore-v3 bias is a (P, 1) tile, and nl.reciprocal takes none",
        f"{ISA}: activation, Layout; {SHARED}: NKI Engine Selection",
    ),
    "activation-range": Rule(
        "(warning) inputs of log, sqrt, rsqrt, reciprocal, sin and arctan are in their valid range",
        _ACTIVATIONS,
    ),
    # Accumulators and reductions.
    "accumulator": Rule(
        "accumulator registers are reset before they are added to or read",
        f"{ISA}: activation, select_reduce, exponential (Accumulator behavior)",
    ),
    "reduce-axis": Rule(
        "reduced axes are the last free dimensions, never the partition",
        f"{ISA}: tensor_reduce (axis); {LANGUAGE}: sum",
    ),
    "reduce-cmd": Rule(
        "reduce_cmd is one that the instruction supports",
        f"{EACH}, Accumulator behavior; {ISA}: reduce_cmd",
    ),
    "reduce-dtype": Rule(
        "reduce_res is a float tile",
        f"{ISA}: select_reduce",
    ),
    "reduce-init": Rule(
        "a start value goes with reduce_cmd.load_reduce, which needs one, and only with it",
        f"{ISA}: tensor_scalar_reduce, exponential, tensor_scalar_cumulative",
    ),
    "reduce-negate": Rule(
        "negate goes with an arithmetic operator",
        f"{ISA}: tensor_reduce (negate)",
    ),
    "reduce-op": Rule(
        "a reduce_cmd that accumulates has a reduce_op, and activation only nl.add",
        f"{ISA}: activation, activate2",
    ),
    "reduce-shape": Rule(
        "dst has as many elements a partition as the reduction leaves",
        f"{ISA}: tensor_reduce, Tile size",
    ),
}
