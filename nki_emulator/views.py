"""Arithmetic on (shape, strides): what a view addresses, without touching memory.

Strides are in elements. Nothing here knows about partitions; `tensor.py` adds those rules.
"""

import math
import operator

import numpy as np

from .errors import NkiError, NkiValidationError


def integer(value):
    """``value`` as an int; None if it is no integer that Python knows (a register says so)."""
    if type(value) is int:
        return value
    if isinstance(value, (bool, np.bool_)):
        return None
    try:
        return operator.index(value)
    except NkiError:
        raise
    except TypeError:
        return None


def integers(values):
    """A tuple or list of integers as a tuple of ints; None if it is anything else."""
    if not isinstance(values, (tuple, list)):
        return None
    found = tuple(integer(value) for value in values)
    return None if None in found else found


def row_major(shape):
    """Strides of a dense row-major array of ``shape``."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return tuple(strides)


def coalesce(shape, strides):
    """The fewest (count, stride) pairs that visit the same elements in the same order."""
    pairs = []
    for count, stride in zip(shape, strides):
        if count == 1:
            continue
        if pairs and pairs[-1][1] == stride * count:
            pairs[-1] = (pairs[-1][0] * count, stride)
        else:
            pairs.append((count, stride))
    return pairs


def reshape(shape, strides, new_shape):
    """Strides that give ``new_shape`` over the same elements in the same order, or None.

    Both shapes have the same number of elements. Each run of dimensions that must be regrouped has
    to lie densely in memory.
    """
    pairs = coalesce(shape, strides)
    pairs.reverse()
    result = []
    remaining, stride = pairs.pop(0) if pairs else (1, 1)
    for size in reversed(new_shape):
        if size == 1:
            result.append(stride)
            continue
        if remaining == 1:
            if not pairs:
                return None
            remaining, stride = pairs.pop(0)
        if remaining % size:
            return None
        result.append(stride)
        remaining //= size
        stride *= size
    result.reverse()
    return tuple(result)


def inferred(shape, count):
    """``shape`` with a -1 replaced so that its product is ``count``; None if that is impossible."""
    shape = integers(shape)
    if shape is None:
        return None
    if shape.count(-1) == 1:
        known = -math.prod(shape)
        if known <= 0 or count % known:
            return None
        shape = tuple(count // known if size == -1 else size for size in shape)
    if any(size < 1 for size in shape) or math.prod(shape) != count:
        return None
    return shape


def rearrangement(shape, source, destination, fixed_sizes):
    """Plan of an einops-style rearrangement.

    Returns ``(split, order, merged)``: the shape after every group of ``source`` is split into its
    names, the permutation of those names into the order of ``destination``, and the final shape
    after its groups are merged.
    """
    source, destination = _groups(source), _groups(destination)
    flat_source = [name for group in source for name in group]
    flat_destination = [name for group in destination for name in group]
    if len(set(flat_source)) != len(flat_source) or sorted(flat_source) != sorted(flat_destination):
        raise NkiValidationError(
            "rearrange",
            f"both patterns must hold the same names once each; found {flat_source} and "
            f"{flat_destination}.",
        )
    if len(source) != len(shape):
        raise NkiValidationError(
            "rearrange", f"the source pattern has {len(source)} entries for shape {list(shape)}."
        )
    sizes = {} if fixed_sizes is None else fixed_sizes
    if not isinstance(sizes, dict) or integers(list(sizes.values())) is None:
        raise NkiValidationError(
            "rearrange", f"fixed_sizes={fixed_sizes!r}; expected a dictionary of names and sizes."
        )
    sizes = dict(sizes)
    unknown_names = set(sizes) - set(flat_source)
    if unknown_names:
        raise NkiValidationError(
            "rearrange", f"fixed_sizes names {list(unknown_names)}, which no pattern has."
        )
    for group, size in zip(source, shape):
        unknown = [name for name in group if name not in sizes]
        if len(unknown) > 1:
            raise NkiValidationError(
                "rearrange", f"sizes of {unknown} cannot be inferred; give them in fixed_sizes."
            )
        known = math.prod(sizes[name] for name in group if name in sizes)
        if unknown and known and size % known == 0:
            sizes[unknown[0]] = size // known
        elif unknown or known != size:
            raise NkiValidationError(
                "rearrange", f"{group} with sizes {sizes} does not make a dimension of {size}."
            )
    split = tuple(sizes[name] for name in flat_source)
    order = tuple(flat_source.index(name) for name in flat_destination)
    merged = tuple(math.prod(sizes[name] for name in group) for group in destination)
    return split, order, merged


def _groups(pattern):
    """The names of each entry of a pattern."""
    if isinstance(pattern, (tuple, list)):
        groups = [(entry,) if isinstance(entry, str) else entry for entry in pattern]
        if all(
            isinstance(group, (tuple, list)) and all(isinstance(name, str) for name in group)
            for group in groups
        ):
            return [tuple(group) for group in groups]
    raise NkiValidationError(
        "rearrange", f"pattern {pattern!r}; expected a tuple of names and of tuples of names."
    )
