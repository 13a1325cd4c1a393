"""What `print(tensor)` and a debugger show: the description of a tensor and its values."""

import numpy as np

# Elements that are shown before NumPy abbreviates, and how many it then shows of an edge: for
# print(tensor), and for repr(tensor), which also stands in messages about wrong arguments.
WHOLE = {"threshold": 200, "edgeitems": 3}
BRIEF = {"threshold": 16, "edgeitems": 1}


def shown(tensor, limits):
    """Description and values; elements that hold nothing (never written, or lost) show as `-`."""
    return f"NkiTensor({tensor.describe()})\n{_values(tensor, limits)}"


def _values(tensor, limits):
    values = tensor.array
    if tensor.info.kind == "float":
        values = values.astype(np.float32)
    written = tensor.storage.is_written(tensor)
    if written.all():
        return np.array2string(values, **limits)

    # NumPy formats the numbers of the elements, and only of those that it shows.
    def element(number):
        index = np.unravel_index(number, tensor.shape)
        return str(values[index]) if written[index] else "-"

    numbers = np.arange(tensor.size).reshape(tensor.shape)
    return np.array2string(numbers, **limits, formatter={"int": element})
