"""`nki.language`: dtypes, buffers, operators, tensor creation, loops and wrappers of NKI 0.6.

The element-wise functions serve as operators (``op=nl.add``). Called on tiles they, like most
functions here, are wrappers that NKI marks experimental: they allocate a tile for the result and
issue the instructions of `nki.isa` that fill it.
"""

# ruff: noqa: F401 - what other modules define is offered here.

from ... import operators
from ...objects import NKIObject
from ...regions import MemoryRegion, is_hbm, is_on_chip, is_psum, is_sbuf
from ...tensor import DynamicSlice, NkiTensor
from .binary import (
    abs_max,
    abs_min,
    add,
    bitwise_and,
    bitwise_or,
    bitwise_xor,
    divide,
    equal,
    fmod,
    greater,
    greater_equal,
    left_shift,
    less,
    less_equal,
    logical_and,
    logical_or,
    logical_xor,
    maximum,
    minimum,
    mod,
    multiply,
    not_equal,
    power,
    right_shift,
    subtract,
)
from .creation import (
    empty_like,
    full,
    ndarray,
    ones,
    rand,
    random_seed,
    shared_constant,
    shared_identity_matrix,
    zeros,
    zeros_like,
)
from .launch import (
    device_print,
    num_programs,
    program_id,
    program_ndim,
)
from .loops import (
    affine_range,
    dynamic_range,
    fori_loop,
    no_reorder,
    sequential_range,
    static_range,
    while_loop,
)
from .movement import (
    broadcast_to,
    copy,
    dropout,
    expand_dims,
    gather_flattened,
    load,
    load_transpose2d,
    matmul,
    store,
    transpose,
    where,
)
from .names import (
    DType,
    average,
    bfloat16,
    bool_,
    bypass,
    float4_e2m1fn_x4,
    float8_e4m3,
    float8_e4m3fn,
    float8_e4m3fn_x4,
    float8_e5m2,
    float8_e5m2_x4,
    float8_e8m0fnu,
    float16,
    float32,
    hbm,
    int8,
    int16,
    int32,
    prelu,
    private_hbm,
    psum,
    sbuf,
    shared_hbm,
    tfloat32,
    uint8,
    uint16,
    uint32,
)
from .reductions import (
    all,
    max,
    mean,
    min,
    prod,
    rms_norm,
    softmax,
    sum,
    var,
)
from .rounding import (
    ceil,
    floor,
    trunc,
)
from .tile_size import (
    _TileSize,
    tile_size,
)
from .trigonometry import (
    cos,
    sin,
    tan,
)
from .unary import (
    abs,
    arctan,
    erf,
    erf_dx,
    exp,
    gelu,
    gelu_apprx_sigmoid,
    gelu_apprx_sigmoid_dx,
    gelu_apprx_tanh,
    gelu_dx,
    invert,
    log,
    logical_not,
    mish,
    negative,
    reciprocal,
    relu,
    rsqrt,
    sigmoid,
    sign,
    silu,
    silu_dx,
    softplus,
    sqrt,
    square,
    tanh,
)


def ds(start, size):
    """Index of the elements [start, start + size)."""
    return DynamicSlice(start, size)


for _name in (*operators.ALU, *operators.functions.ACTIVATIONS):
    operators.register(_name, globals()[_name])
for _marker in (average, prelu, bypass):
    operators.register(_marker.name, _marker)
# The documentation of the reduce instructions also writes nl.max and nl.min.
operators.register_alias(max, "maximum")
operators.register_alias(min, "minimum")
