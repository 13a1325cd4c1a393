"""What each instruction takes, as far as source text can decide it (NKI 0.6 reference, nki.isa).

Only rules that hold on every target are here; the emulator knows the rest.
"""

from .api import INTEGER_DTYPES

ENGINES = {
    "tensor_copy": ("vector", "scalar", "gpsimd", "unknown"),
    "memset": ("vector", "gpsimd", "unknown"),
    "nc_transpose": ("tensor", "vector", "unknown"),
    "tensor_tensor": ("vector", "gpsimd", "unknown"),
    "tensor_scalar": ("vector", "scalar", "gpsimd", "unknown"),
    "rng": ("vector", "gpsimd", "unknown"),
    "rand_set_state": ("vector", "gpsimd", "unknown"),
    "rand_get_state": ("vector", "gpsimd", "unknown"),
}

# Operands that must be in one memory. GpSimd instructions cannot reach PSUM.
SBUF_OPERANDS = {
    "nc_matmul": ("stationary", "moving"),
    "nc_matmul_mx": ("stationary", "moving", "stationary_scale", "moving_scale"),
    "iota": ("dst",),
    "affine_select": ("dst", "on_true_tile"),
    "nc_n_gather": ("dst", "data", "indices"),
    "local_gather": ("dst", "src_buffer", "index"),
    "quantize_mx": ("dst", "src", "dst_scale"),
}
PSUM_OPERANDS = {"nc_matmul": ("dst",), "nc_matmul_mx": ("dst",)}

# Instructions of compute engines: none of them reads or writes HBM.
ON_CHIP_OPERANDS = {
    "tensor_copy": ("dst", "src"),
    "memset": ("dst",),
    "tensor_copy_predicated": ("dst", "src", "predicate"),
    "nc_matmul": ("dst", "stationary", "moving"),
    "nc_transpose": ("dst", "data"),
    "tensor_tensor": ("dst", "data1", "data2"),
    "tensor_scalar": ("dst", "data", "operand0", "operand1"),
    "tensor_reduce": ("dst", "data"),
    "activation": ("dst", "data", "bias", "scale", "reduce_res"),
    "activation_reduce": ("dst", "data", "bias", "scale", "reduce_res"),
    "tensor_scalar_reduce": ("dst", "data", "operand0", "reduce_res"),
    "scalar_tensor_tensor": ("dst", "data", "operand0", "operand1"),
    "tensor_tensor_scan": ("dst", "data0", "data1", "initial"),
    "bn_stats": ("dst", "data"),
    "bn_aggr": ("dst", "data"),
    "reciprocal": ("dst", "data"),
    "exponential": ("dst", "src", "max_value", "reduce_res"),
    "max8": ("dst", "src"),
    "nc_find_index8": ("dst", "data", "vals"),
    "nc_match_replace8": ("dst", "data", "vals", "dst_idx"),
    "nc_stream_shuffle": ("dst", "src"),
    "range_select": ("dst", "on_true_tile", "bound0", "bound1", "reduce_res"),
    "select_reduce": ("dst", "predicate", "on_true", "on_false", "reduce_res"),
    "dropout": ("dst", "data", "prob"),
    "iota": ("dst",),
    "affine_select": ("dst", "on_true_tile"),
}

# Pairs of operands of which at most one may be in PSUM.
NOT_BOTH_PSUM = {
    "tensor_tensor": ("data1", "data2"),
    "scalar_tensor_tensor": ("data", "operand1"),
    "tensor_tensor_scan": ("data0", "data1"),
    "tensor_copy_predicated": ("src", "predicate"),
    "select_reduce": ("on_true", "predicate"),
}

# Instructions whose GpSimd form cannot have an operand in PSUM.
GPSIMD_OPERANDS = {
    "tensor_copy": ("dst", "src"),
    "tensor_tensor": ("dst", "data1", "data2"),
    "memset": ("dst",),
    "rng": ("dst",),
}

# --- operations, as names of nki.language

BITWISE = frozenset("invert bitwise_and bitwise_or bitwise_xor left_shift right_shift".split())
COMPARISONS = frozenset("equal not_equal greater greater_equal less less_equal".split())
UNARY = frozenset("abs square relu rsqrt reciprocal".split())
ARITHMETIC = (
    frozenset(
        "add subtract multiply maximum minimum logical_and logical_or logical_xor power abs_max "
        "abs_min".split()
    )
    | COMPARISONS
)
ALU = BITWISE | ARITHMETIC | UNARY
ACTIVATIONS = frozenset(
    "copy square sigmoid relu prelu gelu gelu_dx gelu_apprx_tanh gelu_apprx_sigmoid "
    "gelu_apprx_sigmoid_dx silu silu_dx tanh softplus mish erf erf_dx exp log sin arctan sqrt "
    "rsqrt reciprocal sign abs".split()
)
REDUCTIONS = frozenset(
    "bitwise_and bitwise_or bitwise_xor add subtract multiply maximum minimum logical_and "
    "logical_or logical_xor".split()
)
ADD = frozenset({"add"})
MAXIMUM = frozenset({"maximum", "max"})

OPERATIONS = {
    "activation": {"op": ACTIVATIONS, "reduce_op": ADD},
    "activation_reduce": {"op": ACTIVATIONS},
    "activate2": {"op": ACTIVATIONS},
    "tensor_tensor": {"op": ALU - UNARY - {"invert"}},
    "tensor_scalar": {"op0": ALU, "op1": ALU},
    "scalar_tensor_tensor": {"op0": ARITHMETIC | UNARY, "op1": ARITHMETIC | UNARY},
    "tensor_reduce": {"op": REDUCTIONS | {"max", "min"}},
    "tensor_scalar_reduce": {
        "op0": ARITHMETIC | UNARY,
        "reduce_op": frozenset("add multiply maximum minimum max min".split()),
    },
    "tensor_scalar_cumulative": {
        "op0": ARITHMETIC | UNARY,
        "op1": frozenset("add subtract multiply maximum minimum max min".split()),
    },
    "tensor_tensor_scan": {"op0": ARITHMETIC, "op1": ARITHMETIC},
    "tensor_partition_reduce": {
        "op": frozenset("add average maximum max bitwise_or bitwise_and".split())
    },
    "range_select": {
        "comp_op0": COMPARISONS - {"not_equal"},
        "comp_op1": COMPARISONS - {"not_equal"},
        "reduce_op": MAXIMUM,
    },
    "select_reduce": {"reduce_op": MAXIMUM},
    "affine_select": {"cmp_op": COMPARISONS},
    "dma_compute": {"reduce_op": ADD},
}

# --- dtypes

DTYPES = {
    "tensor_copy_predicated": {"predicate": frozenset({"uint8", "uint16", "uint32"})},
    "nc_n_gather": {"indices": frozenset({"uint32"})},
    "local_gather": {"index": frozenset({"uint16"})},
    "rng": {"dst": INTEGER_DTYPES},
    "quantize_mx": {
        "src": frozenset({"float16", "bfloat16"}),
        "dst": frozenset({"float8_e5m2_x4", "float8_e4m3fn_x4"}),
        "dst_scale": frozenset({"float8_e8m0fnu", "uint8"}),
    },
    "range_select": {"bound0": frozenset({"float32"}), "bound1": frozenset({"float32"})},
}

SAME_DTYPE = {
    "nc_transpose": ("dst", "data"),
    "nc_stream_shuffle": ("dst", "src"),
    "dma_transpose": ("dst", "src"),
    "dropout": ("dst", "data"),
    "nc_n_gather": ("dst", "data"),
}

# Elements per partition: (operand, least, most).
FREE_SIZES = {
    "bn_stats": ("data", 1, 512),
    "max8": ("src", 8, 16384),
}

# Operands with one number of partitions and of elements per partition.
SAME_SHAPE = {
    "tensor_tensor": ("dst", "data1", "data2"),
    "scalar_tensor_tensor": ("dst", "data", "operand1"),
    "tensor_copy": ("dst", "src"),
    "activation": ("dst", "data"),
    "tensor_scalar": ("dst", "data"),
    "reciprocal": ("dst", "data"),
}
