"""What the checker can know about an expression without running it.

Everything it does not know is :data:`UNKNOWN`, and nothing is ever reported about that.
"""

import ast
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Unknown:
    pass


UNKNOWN = Unknown()


@dataclass(frozen=True)
class ApiName:
    """Something of the NKI 0.6 API, or below it, by dotted path: `nki.language.add`."""

    path: str


@dataclass(frozen=True)
class LibraryName:
    """Something of a package that is not under check: `numpy.sqrt`."""

    path: str

    @property
    def root(self):
        return self.path.split(".")[0]


@dataclass(frozen=True)
class BuiltinName:
    name: str


@dataclass(frozen=True)
class ModuleValue:
    module: object


@dataclass(frozen=True)
class FunctionValue:
    """A function of the checked sources; scope: the one it is defined in; owner: its class."""

    node: ast.AST
    scope: object
    owner: object = None

    @property
    def module(self):
        return self.scope.module


@dataclass(frozen=True)
class ClassValue:
    node: ast.ClassDef
    scope: object

    @property
    def module(self):
        return self.scope.module


@dataclass(frozen=True)
class EnumMember:
    """A member of a nki.isa enum (by path) or of an Enum class of the sources."""

    enum: object
    name: str


@dataclass(frozen=True)
class Instance:
    """An object of a class of the sources."""

    of: ClassValue


@dataclass(frozen=True)
class Constant:
    """A compile-time None, bool, int, float, str or other literal."""

    value: object

    def __eq__(self, other):
        # 0, 0.0 and False are different values to NKI.
        return (
            isinstance(other, Constant)
            and type(self.value) is type(other.value)
            and self.value == other.value
        )

    def __hash__(self):
        return hash((type(self.value), self.value))


NONE = Constant(None)


def is_integer(value):
    return isinstance(value, Constant) and type(value.value) is int


@dataclass(frozen=True)
class Sequence:
    """A tuple or list display; kind: "tuple" or "list"."""

    kind: str
    items: tuple


@dataclass(frozen=True)
class Container:
    """A list, dict or set whose contents are not followed; kind: its Python type."""

    kind: str


@dataclass(frozen=True)
class Register:
    """A VirtualRegister; loop: the read-only one of a counted loop."""

    loop: bool = False


@dataclass(frozen=True)
class Iteration:
    """What a `for` goes over; dynamic: nl.dynamic_range."""

    dynamic: bool


@dataclass(frozen=True)
class Tensor:
    """An NkiTensor. Every field may be None for "not known".

    shape: tuple of int or None; dtype: name such as "float32"; buffer: "sbuf", "psum",
    "private_hbm" or "shared_hbm"; start: first partition; row: elements of one partition of the
    storage, only of a tensor that is not a view of another.
    """

    shape: tuple = None
    dtype: str = None
    buffer: str = None
    start: int = None
    row: int = None

    @property
    def size(self):
        """Number of elements, or None."""
        return product(self.shape)

    @property
    def free_size(self):
        """Elements per partition of an on-chip tensor, or None."""
        return product(self.shape[1:]) if self.shape else None

    def view(self, shape, **changes):
        return replace(self, shape=shape, row=None, **changes)


def product(sizes):
    if sizes is None or None in sizes:
        return None
    result = 1
    for size in sizes:
        result *= size
    return result


def join(values):
    """What is certain when a name may have any of ``values``."""
    values = list(values)
    if not values:
        return UNKNOWN
    result = values[0]
    for value in values[1:]:
        result = join_two(result, value)
    return result


def join_two(first, second):
    if first == second:
        return first
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        return Tensor(
            join_shapes(first.shape, second.shape),
            same(first.dtype, second.dtype),
            same(first.buffer, second.buffer),
            same(first.start, second.start),
            same(first.row, second.row),
        )
    if isinstance(first, Register) and isinstance(second, Register):
        return Register(loop=False)
    return UNKNOWN


def same(first, second):
    return first if first == second else None


def join_shapes(first, second):
    if first is None or second is None or len(first) != len(second):
        return None
    return tuple(same(one, other) for one, other in zip(first, second))
