"""Shapes of tensor views (NKI 0.6 reference, NkiTensor), as far as constants decide them."""

import ast

from .api import ON_CHIP
from .values import NONE, UNKNOWN, ApiName, Constant, Sequence, is_integer


def attribute(tensor, name):
    if name == "shape" and tensor.shape is not None:
        return Sequence("tuple", tuple(size_value(size) for size in tensor.shape))
    if name == "ndim" and tensor.shape is not None:
        return Constant(len(tensor.shape))
    if name == "dtype" and tensor.dtype is not None:
        return ApiName(f"nki.language.{tensor.dtype}")
    if name == "buffer" and tensor.buffer is not None:
        return ApiName(f"nki.language.{tensor.buffer}")
    return UNKNOWN


def size_value(size):
    return UNKNOWN if size is None else Constant(size)


def index(tensor, node, integer):
    """The view ``tensor[node]``; ``integer`` evaluates an index to an int or None."""
    parts = list(node.elts) if isinstance(node, ast.Tuple) else [node]
    view = tensor.view(None, start=None)
    if tensor.shape is None or any(isinstance(part, ast.Starred) for part in parts):
        return view
    parts = without_ellipsis(parts, len(tensor.shape))
    if parts is None:
        return view
    shape = []
    start = tensor.start
    for axis, (size, part) in enumerate(zip(tensor.shape, parts)):
        kept = indexed(size, part, integer)
        if kept is None:
            return view
        first, kept_size, drops = kept
        if axis == 0:
            start = None if start is None or first is None else start + first
            drops = drops and tensor.buffer not in ON_CHIP
        if drops and tensor.buffer is None:
            # What is dropped in HBM may be kept on the chip.
            return view
        if not drops:
            shape.append(kept_size)
    least = 2 if tensor.buffer in ON_CHIP else 1
    while len(shape) < least:
        shape.append(1)
    return tensor.view(tuple(shape), start=start)


def without_ellipsis(parts, rank):
    """One index for every axis, or None if there are too many."""
    full = ast.Slice()
    places = [
        position
        for position, part in enumerate(parts)
        if isinstance(part, ast.Constant) and part.value is Ellipsis
    ]
    if len(places) > 1 or len(parts) - len(places) > rank:
        return None
    missing = rank - (len(parts) - len(places))
    at = places[0] if places else len(parts)
    return parts[:at] + [full] * missing + parts[at + len(places) :]


def indexed(size, part, integer):
    """(first element, elements kept, axis dropped) of one axis; None if it is not decided."""
    if isinstance(part, ast.Slice):
        first = 0 if part.lower is None else integer(part.lower)
        last = size if part.upper is None else integer(part.upper)
        step = 1 if part.step is None else integer(part.step)
        if first is not None and first < 0:
            first = None
        if None in (first, last, step) or last < 0 or step < 1:
            return first, None, False
        if size is not None:
            last = min(last, size)
        return first, max(0, -(-(last - first) // step)), False
    value = integer(part)
    if value is None:
        # A name may hold an integer, a slice or nl.ds().
        return None
    if value < 0:
        value = None if size is None else value + size
    return value, 1, True


def call(tensor, method, arguments):
    """The view that a method of NkiTensor returns."""
    if method in ("reshape", "permute", "ap", "broadcast", "expand_dim", "squeeze_dim"):
        return VIEWS[method](tensor, arguments)
    if method in ("view", "reinterpret_cast"):
        return tensor.view(None, dtype=dtype_argument(arguments.get("dtype")))
    if method in ("slice", "select", "reshape_dim", "flatten_dims", "rearrange"):
        return tensor.view(None, start=None)
    if method in ("vector_select", "indirect"):
        return tensor.view(None, start=None)
    return UNKNOWN


def dtype_argument(value):
    if isinstance(value, ApiName) and value.path.startswith("nki.language."):
        return value.path.rpartition(".")[2]
    return None


def sizes(value):
    """Tuple of sizes, unknown ones None; None if ``value`` is not a tuple or list display."""
    if not isinstance(value, Sequence):
        return None
    return tuple(item.value if is_integer(item) else None for item in value.items)


def reshaped(tensor, arguments):
    shape = sizes(arguments.get("shape"))
    if shape is not None and -1 in shape:
        shape = None
    return tensor.view(shape)


def permuted(tensor, arguments):
    order = sizes(arguments.get("dims"))
    if tensor.shape is None or order is None or None in order:
        return tensor.view(None)
    if sorted(order) != list(range(len(tensor.shape))):
        return tensor.view(None)
    return tensor.view(tuple(tensor.shape[axis] for axis in order))


def patterned(tensor, arguments):
    """`.ap(pattern)`: the shape is the counts of the pattern."""
    pattern = arguments.get("pattern")
    shape = None
    if isinstance(pattern, Sequence):
        pairs = [sizes(pair) for pair in pattern.items]
        if all(pair is not None and len(pair) == 2 for pair in pairs):
            shape = tuple(count for _, count in pairs)
    changes = {"start": None}
    if "dtype" in arguments and arguments["dtype"] != NONE:
        changes["dtype"] = dtype_argument(arguments["dtype"])
    return tensor.view(shape, **changes)


def axis_of(tensor, arguments, extra=0):
    axis = arguments.get("dim")
    if tensor.shape is None or not is_integer(axis):
        return None
    return axis.value if 0 <= axis.value < len(tensor.shape) + extra else None


def broadcast(tensor, arguments):
    axis = axis_of(tensor, arguments)
    size = arguments.get("size")
    if axis is None:
        return tensor.view(None)
    new = size.value if is_integer(size) else None
    return tensor.view(tensor.shape[:axis] + (new,) + tensor.shape[axis + 1 :])


def expanded(tensor, arguments):
    axis = axis_of(tensor, arguments, extra=1)
    if axis is None:
        return tensor.view(None)
    return tensor.view(tensor.shape[:axis] + (1,) + tensor.shape[axis:])


def squeezed(tensor, arguments):
    axis = axis_of(tensor, arguments)
    if axis is None:
        return tensor.view(None)
    return tensor.view(tensor.shape[:axis] + tensor.shape[axis + 1 :])


VIEWS = {
    "reshape": reshaped,
    "permute": permuted,
    "ap": patterned,
    "broadcast": broadcast,
    "expand_dim": expanded,
    "squeeze_dim": squeezed,
}
