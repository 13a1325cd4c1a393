"""Calls whose positional arguments only make sense in the order of NKI 0.2."""

from .values import Constant, Container, Sequence


def is_old_order(path, arguments):
    """True for such a call; ``arguments`` are the values of its positional arguments."""
    if path == "nki.isa.affine_select":
        # Then: dst, pattern, offset, channel_multiplier, on_true_tile, on_false_value.
        return is_number_at(arguments, 3) or is_number_at(arguments, 5)
    if path == "nki.isa.dma_compute" and len(arguments) > 2:
        # Then: dst, srcs, scales, reduce_op.
        return isinstance(arguments[2], (Sequence, Container))
    return False


def is_number_at(arguments, position):
    if position >= len(arguments) or not isinstance(arguments[position], Constant):
        return False
    return type(arguments[position].value) in (int, float)
