"""The launch grid, and printing."""

from ...access import read_raw
from ...errors import NkiValidationError
from ...regions import is_psum
from ...session import current_session
from ...tensor import NkiTensor
from ...views import integer


def program_id(axis=0):
    """Index of this program in the launch grid."""
    _grid_axis(axis)
    return current_session("nl.program_id").program


def num_programs(axes=0):
    """Number of programs of the launch grid."""
    _grid_axis(axes)
    return current_session("nl.num_programs").programs


def _grid_axis(axis):
    only = axis[0] if isinstance(axis, (tuple, list)) and len(axis) == 1 else axis
    if only is not None and integer(only) != 0:
        raise NkiValidationError("grid-axis", f"axis {axis!r}; a launch grid has one axis, 0.")


def program_ndim():
    """Dimensions of the launch grid: 1 for kernel[lnc](...), 0 for kernel(...)."""
    return int(current_session("nl.program_ndim").has_grid)


def device_print(print_prefix, tensor):
    """Print the prefix and the values of a tensor in SBUF or HBM."""
    if not isinstance(print_prefix, str):
        raise NkiValidationError("device-print", f"prefix {print_prefix!r} must be a string.")
    if not isinstance(tensor, NkiTensor):
        raise NkiValidationError("operand-type", f"tensor is {tensor!r}; it must be a tensor.")
    if is_psum(tensor.buffer):
        raise NkiValidationError("device-print", "the tensor is in PSUM; copy it to SBUF first.")
    read_raw(tensor, "tensor")
    print(print_prefix, tensor)
