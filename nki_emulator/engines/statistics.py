"""Vector Engine: mean and variance of rows."""

import numpy as np

from .. import rules
from ..access import read_float32, write_float32
from ..errors import NkiValidationError


def bn_stats(session, dst, data, name):
    """dst = (count, mean, variance * count) of the even and of the odd elements of each row."""
    rules.on_chip(dst, "dst")
    rules.on_chip(data, "data")
    rules.same_partitions(dst, "dst", data.shape[0], "data")
    rules.not_packed(dst, "dst")
    rules.not_packed(data, "data")
    partitions = data.shape[0]
    width = data.size // partitions
    if width > session.target.bn_stats_free:
        raise NkiValidationError(
            "bn-stats-free",
            f"data has {width} elements per partition; bn_stats takes at most "
            f"{session.target.bn_stats_free}. Split the row and combine with bn_aggr.",
        )
    _require_width(dst, "dst", 6, "bn_stats writes six values a partition")
    values = read_float32(data, "data").reshape(partitions, width)
    result = np.zeros((partitions, 6), np.float32)
    for first, part in ((0, values[:, 0::2]), (3, values[:, 1::2])):
        if part.shape[1]:
            mean = np.add.reduce(part, axis=1, keepdims=True) / np.float32(part.shape[1])
            deviation = part - mean
            result[:, first] = part.shape[1]
            result[:, first + 1] = mean[:, 0]
            result[:, first + 2] = np.add.reduce(deviation * deviation, axis=1)
    write_float32(dst, result)
    return session.finish("bn_stats", "vector", (dst,), (data,), name)


def bn_aggr(session, dst, data, name):
    """dst = (mean, population variance) from (count, mean, variance * count) tuples."""
    rules.on_chip(dst, "dst")
    rules.on_chip(data, "data")
    rules.same_partitions(dst, "dst", data.shape[0], "data")
    rules.not_packed(dst, "dst")
    rules.not_packed(data, "data")
    partitions = data.shape[0]
    width = data.size // partitions
    if width % 3:
        raise NkiValidationError(
            "bn-aggr-width",
            f"data has {width} elements per partition; bn_aggr takes (count, mean, variance*count) "
            f"tuples, so a multiple of 3.",
        )
    _require_width(dst, "dst", 2, "bn_aggr writes two values a partition")
    tuples = read_float32(data, "data").reshape(partitions, width // 3, 3)
    count, mean, spread = tuples[:, :, 0], tuples[:, :, 1], tuples[:, :, 2]
    total = np.add.reduce(count, axis=1)
    average = np.add.reduce(count * mean, axis=1) / total
    shift = mean - average[:, None]
    variance = np.add.reduce(spread + count * shift * shift, axis=1) / total
    write_float32(dst, np.stack([average, variance], axis=1))
    return session.finish("bn_aggr", "vector", (dst,), (data,), name)


def _require_width(tensor, role, width, why):
    found = tensor.size // tensor.shape[0]
    if found != width:
        raise NkiValidationError("free-size", f"{role} has {found} elements per partition; {why}.")
