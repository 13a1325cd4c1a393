"""`nki.language`: dtypes, buffers, operators, tensor creation and loops of NKI 0.6.

The element-wise functions serve as operators (``op=nl.add``). Called on tiles they are convenience
wrappers over instructions, which NKI marks experimental; those are not implemented yet.
"""

import os

import numpy as np

from .. import operators
from ..access import read_raw
from ..dtypes import NAME_OF, lookup
from ..errors import NkiNotImplemented, NkiValidationError, warn
from ..objects import NKIObject as NKIObject
from ..regions import MemoryRegion as MemoryRegion
from ..regions import is_hbm as is_hbm
from ..regions import is_on_chip as is_on_chip
from ..regions import is_psum as is_psum
from ..regions import is_sbuf as is_sbuf
from ..session import active_session, current_session
from ..targets import selected_target
from ..tensor import DynamicSlice
from ..tensor import NkiTensor as NkiTensor

DType = str

bool_ = "bool"
int8 = "int8"
int16 = "int16"
int32 = "int32"
uint8 = "uint8"
uint16 = "uint16"
uint32 = "uint32"
float16 = "float16"
float32 = "float32"
bfloat16 = "bfloat16"
tfloat32 = "tfloat32"
float8_e4m3 = "float8_e4m3"
float8_e4m3fn = "float8_e4m3fn"
float8_e5m2 = "float8_e5m2"
float8_e5m2_x4 = "float8_e5m2_x4"
float8_e4m3fn_x4 = "float8_e4m3fn_x4"
float8_e8m0fnu = "float8_e8m0fnu"
float4_e2m1fn_x4 = "float4_e2m1fn_x4"

sbuf = MemoryRegion.sbuf
psum = MemoryRegion.psum
private_hbm = MemoryRegion.private_hbm
shared_hbm = MemoryRegion.shared_hbm
hbm = private_hbm


class _Marker:
    """An operator that is not a function."""

    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return f"nl.{self.name}"


average = _Marker("average")
prelu = _Marker("prelu")
bypass = _Marker("bypass")


def _target():
    session = active_session()
    return session.target if session is not None else selected_target()


class _TileSize(NKIObject):
    """Tile size limits of the target that is selected when they are read."""

    __slots__ = ()

    @property
    def pmax(self):
        """Partitions of a tile, at most."""
        return _target().partitions

    @property
    def psum_bank_fmax(self):
        """Free size of a PSUM bank in float32 elements."""
        return _target().psum_bank_bytes // 4

    @property
    def psum_fmax(self):
        """Deprecated name of psum_bank_fmax."""
        warn("deprecated", "tile_size.psum_fmax: use psum_bank_fmax.", DeprecationWarning)
        return self.psum_bank_fmax

    @property
    def psum_bank_fmax_bytes(self):
        """Bytes of a PSUM bank in one partition."""
        return _target().psum_bank_bytes

    @property
    def psum_num_banks(self):
        """PSUM banks of a partition; one fewer when DMA transposes are lowered to matmuls."""
        reserved = os.environ.get("NKI_DMA_TRANSPOSE_AS_PE_TRANSPOSE", "") in ("1", "true")
        return _target().psum_banks - reserved

    @property
    def gemm_stationary_fmax(self):
        """Free size of a stationary operand, at most."""
        return _target().matmul_stationary_free

    @property
    def gemm_moving_fmax(self):
        """Free size of a moving operand, at most (nc_matmul allows more on gen4)."""
        return _target().matmul_moving_gemm

    @property
    def bn_stats_fmax(self):
        """Free size of a bn_stats operand, at most."""
        return _target().bn_stats_free

    @property
    def psum_min_align(self):
        """Alignment of an address in PSUM, bytes."""
        return _target().psum_align

    @property
    def sbuf_min_align(self):
        """Alignment of an address in SBUF, bytes."""
        return _target().sbuf_align

    @property
    def sbuf_size_bytes(self):
        """Bytes of SBUF, all partitions together."""
        return self.sbuf_fmax_bytes * self.pmax

    @property
    def sbuf_fmax(self):
        """Free size of an SBUF partition in float32 elements."""
        return self.sbuf_fmax_bytes // 4

    @property
    def sbuf_fmax_bytes(self):
        """Bytes of an SBUF partition."""
        return _target().sbuf_partition_bytes

    @property
    def total_available_sbuf_size(self):
        """Deprecated name of sbuf_fmax_bytes."""
        warn(
            "deprecated", "tile_size.total_available_sbuf_size: use sbuf_fmax_bytes.",
            DeprecationWarning,
        )  # fmt: skip
        return self.sbuf_fmax_bytes


tile_size = _TileSize()


def ndarray(shape, dtype, buffer=sbuf, name="", address=None):
    """A new, uninitialised tensor; ``address`` is (partition, byte within the partition)."""
    return current_session("nl.ndarray").allocate(shape, dtype, buffer, name, address)


def full(shape, fill_value, dtype, buffer=sbuf, name=""):
    """A new on-chip tensor filled with ``fill_value``."""
    from . import isa

    tensor = ndarray(shape, dtype, buffer, name)
    if is_hbm(buffer):
        raise NkiNotImplemented("nl.full, nl.zeros and nl.ones in HBM")
    if lookup(current_session().table, dtype).kind != "float":
        fill_value = int(fill_value)
    isa.memset(tensor, fill_value)
    return tensor


def zeros(shape, dtype, buffer=sbuf, name=""):
    """A new on-chip tensor of zeros."""
    return full(shape, 0, dtype, buffer, name)


def ones(shape, dtype, buffer=sbuf, name=""):
    """A new on-chip tensor of ones."""
    return full(shape, 1, dtype, buffer, name)


def ds(start, size):
    """Index of the elements [start, start + size)."""
    return DynamicSlice(start, size)


def _deprecated_range(name, start, stop, step):
    warn("deprecated", f"nl.{name} is an alias of range; use range.", DeprecationWarning)
    return range(start) if stop is None else range(start, stop, step)


def affine_range(start, stop=None, step=1):
    """Deprecated alias of range."""
    return _deprecated_range("affine_range", start, stop, step)


def sequential_range(start, stop=None, step=1):
    """Deprecated alias of range."""
    return _deprecated_range("sequential_range", start, stop, step)


def static_range(start, stop=None, step=1):
    """Deprecated alias of range."""
    return _deprecated_range("static_range", start, stop, step)


def program_id(axis=0):
    """Index of this program in the launch grid."""
    _grid_axis(axis)
    return current_session("nl.program_id").program


def num_programs(axes=0):
    """Number of programs of the launch grid."""
    _grid_axis(axes)
    return current_session("nl.num_programs").programs


def _grid_axis(axis):
    if axis not in (0, (0,), None):
        raise NkiValidationError("grid-axis", f"axis {axis!r}; a launch grid has one axis, 0.")


def program_ndim():
    """Dimensions of the launch grid: 1 for kernel[lnc](...), 0 for kernel(...)."""
    return int(current_session("nl.program_ndim").has_grid)


def shared_constant(constant):
    """An HBM tensor with constant content: a NumPy array, or the path of an .npy file."""
    session = current_session("nl.shared_constant")
    array = np.load(constant) if isinstance(constant, (str, os.PathLike)) else np.array(constant)
    dtype = NAME_OF.get(array.dtype)
    if dtype is None or array.ndim == 0 or array.size == 0:
        raise NkiValidationError(
            "constant",
            f"a constant of dtype {array.dtype} and shape {list(array.shape)}; it needs an NKI "
            f"dtype (no 64-bit types) and at least one element and dimension.",
        )
    tensor = session.allocate(array.shape, dtype, shared_hbm, "constant")
    tensor.array[...] = array
    tensor.storage.mark_written(tensor)
    tensor.storage.readonly = True
    return tensor


def shared_identity_matrix(n, dtype=uint8, dst=None):
    """The n x n identity in SBUF; all uses of one size and dtype share a tile. ``dst`` takes it."""
    session = current_session("nl.shared_identity_matrix")
    tensor = dst
    if dst is None:
        tensor = session.identities.get((n, dtype))
        if tensor is not None:
            return tensor
        tensor = session.allocate((n, n), dtype, sbuf, f"identity{n}")
        session.identities[n, dtype] = tensor
    elif tuple(dst.shape) != (n, n) or dst.dtype != dtype or not is_sbuf(dst.buffer):
        raise NkiValidationError(
            "identity-dst", f"dst is {dst.describe()}; expected an SBUF tile {dtype}[{n}, {n}]."
        )
    tensor.array[...] = np.eye(n).astype(tensor.info.storage)
    tensor.storage.mark_written(tensor)
    tensor.storage.readonly = dst is None
    return tensor


def device_print(print_prefix, tensor):
    """Print the prefix and the values of a tensor in SBUF or HBM."""
    if not isinstance(print_prefix, str):
        raise NkiValidationError("device-print", f"prefix {print_prefix!r} must be a string.")
    if is_psum(tensor.buffer):
        raise NkiValidationError("device-print", "the tensor is in PSUM; copy it to SBUF first.")
    read_raw(tensor, "tensor")
    print(print_prefix, tensor)


def add(x, y, dtype=None):
    """x + y."""
    raise NkiNotImplemented("nl.add")


def subtract(x, y, dtype=None):
    """x - y."""
    raise NkiNotImplemented("nl.subtract")


def multiply(x, y, dtype=None):
    """x * y."""
    raise NkiNotImplemented("nl.multiply")


def divide(x, y, dtype=None):
    """Element-wise division. Not implemented yet."""
    raise NkiNotImplemented("nl.divide")


def maximum(x, y, dtype=None):
    """The larger of x and y."""
    raise NkiNotImplemented("nl.maximum")


def minimum(x, y, dtype=None):
    """The smaller of x and y."""
    raise NkiNotImplemented("nl.minimum")


def abs_max(x, y, dtype=None):
    """Of x and y, the one of larger magnitude."""
    raise NkiNotImplemented("nl.abs_max")


def abs_min(x, y, dtype=None):
    """Of x and y, the one of smaller magnitude."""
    raise NkiNotImplemented("nl.abs_min")


def abs(x, dtype=None):
    """|x|."""
    raise NkiNotImplemented("nl.abs")


def square(x, dtype=None):
    """x * x."""
    raise NkiNotImplemented("nl.square")


def power(x, y, dtype=None):
    """x to the power y."""
    raise NkiNotImplemented("nl.power")


def equal(x, y, dtype=None):
    """1.0 where x == y."""
    raise NkiNotImplemented("nl.equal")


def not_equal(x, y, dtype=None):
    """1.0 where x != y."""
    raise NkiNotImplemented("nl.not_equal")


def less(x, y, dtype=None):
    """1.0 where x < y."""
    raise NkiNotImplemented("nl.less")


def less_equal(x, y, dtype=None):
    """1.0 where x <= y."""
    raise NkiNotImplemented("nl.less_equal")


def greater(x, y, dtype=None):
    """1.0 where x > y."""
    raise NkiNotImplemented("nl.greater")


def greater_equal(x, y, dtype=None):
    """1.0 where x >= y."""
    raise NkiNotImplemented("nl.greater_equal")


def bitwise_and(x, y, dtype=None):
    """Bits of x and y."""
    raise NkiNotImplemented("nl.bitwise_and")


def bitwise_or(x, y, dtype=None):
    """Bits of x or y."""
    raise NkiNotImplemented("nl.bitwise_or")


def bitwise_xor(x, y, dtype=None):
    """Bits of x or else y."""
    raise NkiNotImplemented("nl.bitwise_xor")


def invert(x, dtype=None):
    """Complement of the bits."""
    raise NkiNotImplemented("nl.invert")


def left_shift(x, y, dtype=None):
    """x shifted left by y bits."""
    raise NkiNotImplemented("nl.left_shift")


def right_shift(x, y, dtype=None):
    """x shifted right by y bits, zeros shifted in."""
    raise NkiNotImplemented("nl.right_shift")


def logical_and(x, y, dtype=None):
    """1.0 where x and y."""
    raise NkiNotImplemented("nl.logical_and")


def logical_or(x, y, dtype=None):
    """1.0 where x or y."""
    raise NkiNotImplemented("nl.logical_or")


def logical_xor(x, y, dtype=None):
    """1.0 where one of x and y."""
    raise NkiNotImplemented("nl.logical_xor")


def logical_not(x, dtype=None):
    """Element-wise logical not. Not implemented yet."""
    raise NkiNotImplemented("nl.logical_not")


def exp(x, dtype=None):
    """Exponential."""
    raise NkiNotImplemented("nl.exp")


def log(x, dtype=None):
    """Natural logarithm."""
    raise NkiNotImplemented("nl.log")


def sqrt(x, dtype=None):
    """Square root."""
    raise NkiNotImplemented("nl.sqrt")


def rsqrt(x, dtype=None):
    """1 / sqrt(x)."""
    raise NkiNotImplemented("nl.rsqrt")


def tanh(x, dtype=None):
    """Hyperbolic tangent."""
    raise NkiNotImplemented("nl.tanh")


def sigmoid(x, dtype=None):
    """Logistic function."""
    raise NkiNotImplemented("nl.sigmoid")


def relu(x, dtype=None):
    """max(x, 0)."""
    raise NkiNotImplemented("nl.relu")


def gelu(x, dtype=None):
    """GELU with the exact normal distribution."""
    raise NkiNotImplemented("nl.gelu")


def gelu_apprx_sigmoid(x, dtype=None):
    """x * sigmoid(1.702 x)."""
    raise NkiNotImplemented("nl.gelu_apprx_sigmoid")


def gelu_apprx_tanh(x, dtype=None):
    """GELU, tanh approximation."""
    raise NkiNotImplemented("nl.gelu_apprx_tanh")


def gelu_dx(x, dtype=None):
    """Derivative of gelu."""
    raise NkiNotImplemented("nl.gelu_dx")


def gelu_apprx_sigmoid_dx(x, dtype=None):
    """Derivative of gelu_apprx_sigmoid."""
    raise NkiNotImplemented("nl.gelu_apprx_sigmoid_dx")


def silu(x, dtype=None):
    """x * sigmoid(x)."""
    raise NkiNotImplemented("nl.silu")


def silu_dx(x, dtype=None):
    """Derivative of silu."""
    raise NkiNotImplemented("nl.silu_dx")


def softplus(x, dtype=None):
    """log(1 + exp(x))."""
    raise NkiNotImplemented("nl.softplus")


def mish(x, dtype=None):
    """x * tanh(softplus(x))."""
    raise NkiNotImplemented("nl.mish")


def erf(x, dtype=None):
    """Error function."""
    raise NkiNotImplemented("nl.erf")


def erf_dx(x, dtype=None):
    """Derivative of erf."""
    raise NkiNotImplemented("nl.erf_dx")


def reciprocal(x, dtype=None):
    """1 / x."""
    raise NkiNotImplemented("nl.reciprocal")


def copy(x, dtype=None):
    """x itself."""
    raise NkiNotImplemented("nl.copy")


def sin(x, dtype=None):
    """Sine."""
    raise NkiNotImplemented("nl.sin")


def cos(x, dtype=None):
    """Cosine. Not implemented yet."""
    raise NkiNotImplemented("nl.cos")


def tan(x, dtype=None):
    """Tangent. Not implemented yet."""
    raise NkiNotImplemented("nl.tan")


def arctan(x, dtype=None):
    """Arc tangent."""
    raise NkiNotImplemented("nl.arctan")


def ceil(x, dtype=None):
    """Round up. Not implemented yet."""
    raise NkiNotImplemented("nl.ceil")


def floor(x, dtype=None):
    """Round down. Not implemented yet."""
    raise NkiNotImplemented("nl.floor")


def trunc(x, dtype=None):
    """Round towards zero. Not implemented yet."""
    raise NkiNotImplemented("nl.trunc")


def negative(x, dtype=None):
    """Element-wise negation. Not implemented yet."""
    raise NkiNotImplemented("nl.negative")


def sign(x, dtype=None):
    """Sign of x."""
    raise NkiNotImplemented("nl.sign")


def fmod(x, y, dtype=None):
    """Element-wise remainder with the sign of x. Not implemented yet."""
    raise NkiNotImplemented("nl.fmod")


def mod(x, y, dtype=None):
    """Element-wise remainder with the sign of y. Not implemented yet."""
    raise NkiNotImplemented("nl.mod")


def sum(x, axis, dtype=None, keepdims=False):
    """Sum over free axes. Not implemented yet."""
    raise NkiNotImplemented("nl.sum")


def max(x, axis, dtype=None, keepdims=False):
    """Maximum over free axes. Not implemented yet."""
    raise NkiNotImplemented("nl.max")


def min(x, axis, dtype=None, keepdims=False):
    """Minimum over free axes. Not implemented yet."""
    raise NkiNotImplemented("nl.min")


def mean(x, axis, dtype=None, keepdims=False):
    """Mean over free axes. Not implemented yet."""
    raise NkiNotImplemented("nl.mean")


def prod(x, axis, dtype=None, keepdims=False):
    """Product over free axes. Not implemented yet."""
    raise NkiNotImplemented("nl.prod")


def var(x, axis, dtype=None, keepdims=False):
    """Variance over free axes. Not implemented yet."""
    raise NkiNotImplemented("nl.var")


def all(x, axis, dtype=None):
    """Whether all elements over free axes are true. Not implemented yet."""
    raise NkiNotImplemented("nl.all")


def softmax(x, axis=-1, dtype=None):
    """Softmax over free axes. Not implemented yet."""
    raise NkiNotImplemented("nl.softmax")


def rms_norm(x, w, axis, n, epsilon=1e-06, dtype=None, compute_dtype=None):
    """Root mean square normalization. Not implemented yet."""
    raise NkiNotImplemented("nl.rms_norm")


def where(condition, x, y, dtype=None):
    """Select by condition. Not implemented yet."""
    raise NkiNotImplemented("nl.where")


def dropout(x, rate, dtype=None):
    """Zero elements at random. Not implemented yet."""
    raise NkiNotImplemented("nl.dropout")


def zeros_like(x, dtype=None, buffer=None, name=''):
    """A tensor of zeros like x. Not implemented yet."""
    raise NkiNotImplemented("nl.zeros_like")


def empty_like(x, dtype=None, buffer=None, name=''):
    """An uninitialised tensor like x. Not implemented yet."""
    raise NkiNotImplemented("nl.empty_like")


def random_seed(seed):
    """Seed the random number generator. Not implemented yet."""
    raise NkiNotImplemented("nl.random_seed")


def expand_dims(x, axis):
    """Insert a dimension of size 1. Not implemented yet."""
    raise NkiNotImplemented("nl.expand_dims")


def broadcast_to(x, shape, dtype=None):
    """Broadcast a tile to a shape. Not implemented yet."""
    raise NkiNotImplemented("nl.broadcast_to")


def transpose(x, dtype=None):
    """Transpose a 2-D tile. Not implemented yet."""
    raise NkiNotImplemented("nl.transpose")


def matmul(x, y, transpose_x=False):
    """Matrix product. Not implemented yet."""
    raise NkiNotImplemented("nl.matmul")


def no_reorder():
    """Keep the instructions of a block in program order. Not implemented yet."""
    raise NkiNotImplemented("nl.no_reorder")


def load_transpose2d(src, dtype=None):
    """Load and transpose. Not implemented yet."""
    raise NkiNotImplemented("nl.load_transpose2d")


def gather_flattened(data, indices, axis=0, dtype=None):
    """Gather along the free axis. Not implemented yet."""
    raise NkiNotImplemented("nl.gather_flattened")


def dynamic_range(start, stop=None, step=1):
    """A loop on the device. Not implemented yet."""
    raise NkiNotImplemented("nl.dynamic_range")


def fori_loop(lower, upper, body_fun, step=1):
    """A counted loop on the device. Not implemented yet."""
    raise NkiNotImplemented("nl.fori_loop")


def while_loop(init, body_fun):
    """A conditional loop on the device. Not implemented yet."""
    raise NkiNotImplemented("nl.while_loop")


def load(src, dtype=None):
    """Load from HBM into a new SBUF tile. Not implemented yet."""
    raise NkiNotImplemented("nl.load")


def store(dst, value):
    """Store an SBUF tile to HBM. Not implemented yet."""
    raise NkiNotImplemented("nl.store")


def rand(shape, dtype, buffer=sbuf, name=''):
    """Uniform random numbers. Not implemented yet."""
    raise NkiNotImplemented("nl.rand")


for _name in (*operators.ALU, *operators.functions.ACTIVATIONS):
    operators.register(_name, globals()[_name])
for _marker in (average, prelu, bypass):
    operators.register(_marker.name, _marker)
# The documentation of the reduce instructions also writes nl.max and nl.min.
operators.register_alias(max, "maximum")
operators.register_alias(min, "minimum")
