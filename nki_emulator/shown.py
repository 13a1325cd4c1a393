"""What `print(tensor)` and a debugger show: the description of a tensor and its values."""

import numpy as np

# Elements that are shown before NumPy abbreviates.
THRESHOLD = 200


def shown(tensor):
    """Description and values; elements that hold nothing (never written, or lost) show as `-`."""
    return f"NkiTensor({tensor.describe()})\n{_values(tensor)}"


def _values(tensor):
    values = tensor.array
    if tensor.info.kind == "float":
        values = values.astype(np.float32)
    written = tensor.storage.is_written(tensor)
    if written.all():
        return np.array2string(values, threshold=THRESHOLD)

    # NumPy formats the numbers of the elements, and only of those that it shows.
    def element(number):
        index = np.unravel_index(number, tensor.shape)
        return str(values[index]) if written[index] else "-"

    numbers = np.arange(tensor.size).reshape(tensor.shape)
    return np.array2string(numbers, threshold=THRESHOLD, formatter={"int": element})
