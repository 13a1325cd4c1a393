"""Registers of the engines' sequencers: 32-bit numbers that exist only while the kernel runs.

The emulator knows a register's value, but Python must not: the compiler has no value while it
builds the kernel. So the value is hidden, and using a register in a condition, in arithmetic or as
an integer is an error. What an instruction reads from a register it gets from :func:`scalar`.

A register carries nothing from one iteration of a dynamic loop to the next, nor out of the loop:
NKI keeps such state in SBUF or HBM (migration guide 0.5 to 0.6, "Rules for migrated loops").

A sequencer has 64 registers, but `nisa.register_alloc` hands out virtual ones that the compiler
maps to the sequencers as it sees fit, so their number is not limited here.
"""

import numbers

import numpy as np

from . import rules
from .access import read_raw, write_raw
from .errors import NkiValidationError
from .objects import NKIObject
from .regions import MemoryRegion

# What a register can hold (language guide, "Dynamic Control Flow"): name of the dtype.
INTEGERS = ("int8", "int16", "int32", "uint8", "uint16", "uint32")
LOWEST, HIGHEST = -(2**31), 2**32 - 1


class NkiRegisterError(NkiValidationError, TypeError):
    """A register was used in Python as if its value were known.

    A TypeError too, which is what the stub of VirtualRegister announces.
    """


class VirtualRegister(NKIObject):
    """A register; made with ``nisa.register_alloc``. A ``frozen`` one cannot be written."""

    __slots__ = ("_value", "_frozen", "_written_in", "__weakref__")

    def __init__(self, state=None, frozen=False):
        if state is not None:
            _immediate(state, "state")
        self._value = state
        self._frozen = frozen
        self._written_in = None

    def describe(self):
        """Short description for messages and for print(), with the value."""
        value = "unwritten" if self._value is None else self._value
        return f"VirtualRegister({value})"

    __repr__ = describe

    # What Python may not do with a register.

    def _no_arithmetic(self, *_):
        raise NkiRegisterError(
            "register-arithmetic",
            "a register has no value while the kernel is built, so Python cannot compute with it "
            "or compare it. Compute on the device (nisa.tensor_scalar, nisa.tensor_tensor on a "
            "(1, 1) tile) and load the result with nisa.register_load.",
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _no_arithmetic
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _no_arithmetic
    __divmod__ = __rdivmod__ = __pow__ = __rpow__ = __neg__ = __pos__ = __abs__ = _no_arithmetic
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __invert__ = _no_arithmetic
    __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = _no_arithmetic
    __lt__ = __le__ = __gt__ = __ge__ = _no_arithmetic

    def __eq__(self, other):
        if isinstance(other, numbers.Number):
            self._no_arithmetic()
        return self is other

    __hash__ = object.__hash__

    def _no_conversion(self, *_):
        raise NkiRegisterError(
            "register-conversion",
            "a register has no value while the kernel is built, so it is no Python integer: not "
            "for int(), range() or an index. Index a tensor with .select(dim, register) or "
            ".ap(..., scalar_offset=register); loop with nl.fori_loop(lower, upper, body).",
        )

    __index__ = __int__ = __float__ = __complex__ = __round__ = __trunc__ = _no_conversion

    def __bool__(self):
        raise NkiRegisterError(
            "register-condition",
            "a register has no value while the kernel is built, so it cannot decide an `if` or a "
            "Python `while`. Use nl.while_loop(register, body), or select on the device.",
        )


def is_integer(value):
    """Whether ``value`` is an integer known when the kernel is built."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def scalar(value, role):
    """The value of an operand that is a Python integer or a register that holds an integer."""
    if isinstance(value, VirtualRegister):
        held = _content(value, role)
        if not isinstance(held, int):
            raise NkiValidationError(
                "register-float",
                f"{role} is a register that was loaded from float32; it must hold an integer.",
            )
        return held
    if not is_integer(value):
        raise NkiValidationError(
            "operand-type",
            f"{role} is {value!r}; expected an integer or a register (nisa.register_alloc).",
        )
    return int(value)


def register_alloc(session, x):
    """A new register: uninitialised, or holding the integer ``x``."""
    return new_register(session, None if x is None else _immediate(x, "x"))


def register_move(session, dst, src):
    """dst = src, an integer or another register."""
    _writable(dst)
    value = _content(src, "src") if isinstance(src, VirtualRegister) else _immediate(src, "src")
    write(session, dst, value)
    return session.finish("register_move", "sequencer", (), ())


def register_load(session, dst, src):
    """dst = the only element of src, in HBM or SBUF."""
    _writable(dst)
    _single_element(src, "src")
    write(session, dst, read_raw(src, "src").item())
    return session.finish("register_load", "sequencer", (), (src,))


def register_store(session, dst, src):
    """The only element of dst, in HBM or SBUF, = src."""
    _single_element(dst, "dst")
    _register(src, "src")
    value = _content(src, "src")
    # A register holds bits; the documentation names no conversion, so none is made.
    if isinstance(value, float) != (dst.info.kind == "float"):
        raise NkiValidationError(
            "register-dtype",
            f"dst is {dst.dtype} and the register holds {value!r}; an integer goes to an integer "
            f"dtype and a register loaded from float32 to float32.",
        )
    if dst.info.kind == "integer":
        limits = np.iinfo(dst.info.storage)
        if not limits.min <= value <= limits.max:
            raise NkiValidationError(
                "register-range",
                f"the register holds {value}, which {dst.dtype} ({limits.min}..{limits.max}) "
                f"cannot; use a wider dst.",
            )
    write_raw(dst, np.full(dst.shape, value, dst.info.storage))
    return session.finish("register_store", "sequencer", (dst,), ())


def write(session, register, value):
    """Give a register a value in the current iteration of the innermost dynamic loop."""
    register._value = value
    register._written_in = None if session.dynamic is None else session.dynamic.iteration


def new_register(session, value, frozen=False):
    """A register that holds ``value``, an integer or None; it belongs to the running iteration."""
    register = VirtualRegister(frozen=frozen)
    session.runtime().adopt(register)
    write(session, register, value)
    return register


def _content(register, role):
    if register._written_in is not None and not register._written_in.open:
        raise NkiValidationError(
            "register-carried",
            f"{role} is a register that was last written in an iteration of a dynamic loop that "
            f"has ended; registers carry nothing between iterations or out of the loop. Keep the "
            f"value in SBUF or HBM (nisa.register_store) and load it where it is needed.",
        )
    if register._value is None:
        raise NkiValidationError(
            "register-unwritten",
            f"{role} is a register that nothing has written; give it a "
            f"value with nisa.register_alloc(x), register_move or register_load.",
        )
    return register._value


def _register(value, role):
    if not isinstance(value, VirtualRegister):
        raise NkiValidationError(
            "register-operand", f"{role} is {value!r}; expected a register (nisa.register_alloc)."
        )
    return value


def _writable(register):
    if _register(register, "dst")._frozen:
        raise NkiValidationError(
            "register-frozen",
            "dst is the register of a counted loop, which only the loop writes; copy it to "
            "another register with nisa.register_move.",
        )


def _immediate(value, role):
    if not is_integer(value):
        raise NkiValidationError(
            "register-immediate", f"{role} is {value!r}; expected an integer or None."
            if role == "x" else f"{role} is {value!r}; expected an integer or a register."
        )  # fmt: skip
    if not LOWEST <= value <= HIGHEST:
        raise NkiValidationError("register-range", f"{role} is {value}; a register has 32 bits.")
    return int(value)


def _single_element(tensor, role):
    rules.tensor(tensor, role)
    if tensor.buffer is MemoryRegion.psum:
        raise NkiValidationError(
            "register-psum",
            f"{role} is in PSUM; registers reach SBUF and HBM only. Copy it "
            f"with nisa.tensor_copy first.",
        )
    if tensor.shape not in ((1,), (1, 1)):
        raise NkiValidationError(
            "register-shape",
            f"{role} has shape {list(tensor.shape)}; it must be one element, [1] or [1, 1].",
        )
    if tensor.dtype not in (*INTEGERS, "float32"):
        raise NkiValidationError(
            "register-dtype",
            f"{role} is {tensor.dtype}; a register holds {', '.join(INTEGERS)} or float32.",
        )
