"""Loops of `nki.language`: the aliases of range, loops on the device, no_reorder."""

from ... import loops as device
from ...errors import warn


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


def dynamic_range(start, stop=None, step=1):
    """Deprecated: iterator of a loop on the device, over registers that can only be read.

    ``start`` and ``stop`` are integers or registers, ``step`` a positive integer. Use fori_loop.
    """
    return device.dynamic_range(start, stop, step)


def fori_loop(lower, upper, body_fun, step=1):
    """Loop on the device: ``body_fun(i)`` for i = lower, lower + step, ... below upper.

    ``lower`` and ``upper`` are integers or registers, ``step`` a positive integer; ``i`` is a
    register that can only be read. The body returns nothing, keeps its state in SBUF or HBM and
    does the same in every iteration; tensors made in it cannot be used outside of it. The emulator
    refuses more than `nki_emulator.loops.MAX_ITERATIONS` (100 000) iterations.
    """
    device.fori_loop(lower, upper, body_fun, step)


def while_loop(init, body_fun):
    """Loop on the device: while the register is not zero, register = body_fun(register).

    ``init`` is a register. The body gets a copy of the condition and returns the register that
    holds the next one; otherwise it follows the rules of fori_loop. The emulator stops with an
    error after `nki_emulator.loops.MAX_ITERATIONS` (100 000) iterations.
    """
    device.while_loop(init, body_fun)


def no_reorder():
    """Context manager: the instructions of the block keep their order.

    Dynamic loops are not allowed in it, directly or in a function that the block calls.
    """
    return device.NoReorder()
