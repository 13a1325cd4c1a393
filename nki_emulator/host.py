"""Kernel arguments and results: NumPy arrays and torch tensors on the caller's side.

An array argument becomes an HBM tensor over the caller's own memory, so that a kernel that writes
its argument changes the caller's array, as on the chip. Where that is impossible (a strided array,
or `NKI_PRECISE_FP=0`) the kernel gets a copy that is written back at the end. torch is only looked
for among the modules the caller has imported.
"""

import enum
import sys

import numpy as np

from .dtypes import NAME_OF, PRECISE
from .errors import NkiArgumentError, NkiUninitializedRead, NkiValidationError
from .objects import NKIObject
from .regions import MemoryRegion
from .storage import Storage
from .tensor import NkiTensor

# torch dtypes that NumPy lacks: (integer of the same size, NKI name).
_TORCH_ONLY = {
    "torch.bfloat16": ("int16", "bfloat16"),
    "torch.float8_e4m3fn": ("uint8", "float8_e4m3fn"),
    "torch.float8_e5m2": ("uint8", "float8_e5m2"),
    "torch.float8_e8m0fnu": ("uint8", "float8_e8m0fnu"),
}


class Arguments:
    """The caller's arguments as the kernel sees them, and the way back."""

    def __init__(self, session, buffer):
        """``buffer`` is where arguments are said to be: private HBM, or shared by two programs."""
        self.session = session
        self.buffer = buffer
        self.uses_torch = False
        self._arrays = {}  # place of an argument: (original argument, its NumPy view, tensor)

    def storages(self):
        """The storages of the array arguments."""
        return [tensor.storage for _, _, tensor in self._arrays.values()]

    def wrap(self, value, name):
        """``value`` for the kernel: arrays become HBM tensors, containers are copied.

        An argument that is wrapped again, for another program, gives the same tensor.
        """
        if name in self._arrays:
            return self._arrays[name][2]
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(value, torch.Tensor):
            self.uses_torch = True
            return self._tensor(value, _array_of_torch(torch, value, name), name)
        if isinstance(value, np.ndarray):
            return self._tensor(value, value, name)
        if isinstance(value, list):
            raise NkiArgumentError(
                "argument-list",
                f"argument {name} is a list; pass an array (np.asarray or torch.tensor) for a "
                f"tensor, or a tuple for a group of values (NKI 0.3 and later).",
            )
        if type(value) is tuple:
            return tuple(self.wrap(item, f"{name}[{i}]") for i, item in enumerate(value))
        if type(value) is dict:
            for key in value:
                if not isinstance(key, str):
                    raise NkiArgumentError(
                        "argument-type",
                        f"argument {name} is a dict with the key {key!r}; keys must be strings.",
                    )
            return {key: self.wrap(item, f"{name}[{key!r}]") for key, item in value.items()}
        if isinstance(value, NKIObject) and hasattr(value, "__dict__"):
            copy = object.__new__(type(value))
            for field, item in value.__dict__.items():
                copy.__dict__[field] = self.wrap(item, f"{name}.{field}")
            return copy
        _require_known_kind(value, name)
        return value

    def _tensor(self, original, array, name):
        dtype = NAME_OF.get(array.dtype)
        if dtype is None:
            raise NkiArgumentError(
                "argument-dtype",
                f"argument {name} has dtype {array.dtype}, which NKI lacks (no 64-bit types); "
                f"convert it, e.g. to float32 or int32.",
            )
        if array.ndim == 0 or array.size == 0:
            raise NkiArgumentError(
                "argument-shape",
                f"argument {name} has shape {list(array.shape)}; an HBM tensor has at least one "
                f"dimension and no empty one.",
            )
        info = self.session.table[dtype]
        held = np.ascontiguousarray(array)
        if info.storage != array.dtype:
            held = held.astype(info.storage)
        storage = Storage(
            self.buffer, array.shape, info, self.session.table,
            held.reshape(-1).view(np.uint8), name,
        )  # fmt: skip
        storage.readonly = not array.flags.writeable
        self.session.adopt(storage)
        tensor = NkiTensor(array.shape, dtype, storage, self.buffer)
        self._arrays[name] = (original, array, tensor)
        return tensor

    def write_back(self):
        """Copy what the kernel wrote into arguments that it saw as copies."""
        for _, array, tensor in self._arrays.values():
            if tensor.storage.version and not np.shares_memory(tensor.storage.memory, array):
                array[...] = tensor.array.astype(array.dtype)

    def unwrap(self, result):
        """The kernel's result for the caller: tensors become arrays of the arguments' kind."""
        if isinstance(result, (tuple, list)):
            return type(result)(self.unwrap(item) for item in result)
        if result is None:
            return None
        if not isinstance(result, NkiTensor):
            raise NkiValidationError(
                "return-type", f"the kernel returns {result!r}; it must return tensors."
            )
        for original, _, tensor in self._arrays.values():
            if tensor.storage is result.storage and tensor.region == result.region:
                return original
        array = _returned_array(result)
        return _torch_of_array(array) if self.uses_torch else array


def require_same_results(results):
    """All programs of a launch return the same tensors: the caller gets the first program's."""
    first = _result_tensors(results[0])
    for program, result in enumerate(results[1:], 1):
        if _result_tensors(result) != first:
            raise NkiValidationError(
                "return-programs",
                f"program 0 returns {_results_text(results[0])} and program {program} "
                f"{_results_text(result)}; all programs must return the same tensors (allocate "
                f"them in nl.shared_hbm and let each program write its part).",
            )


def _result_tensors(result):
    """What a result is made of, such that equal results compare equal."""
    if isinstance(result, (tuple, list)):
        return [type(result), *map(_result_tensors, result)]
    if isinstance(result, NkiTensor):
        return (result.storage.number, result.region, result.dtype)
    return repr(result)


def _results_text(result):
    if isinstance(result, (tuple, list)):
        return f"({', '.join(map(_results_text, result))})"
    return result.storage.describe() if isinstance(result, NkiTensor) else repr(result)


def _returned_array(tensor):
    storage = tensor.storage
    if tensor.buffer is not MemoryRegion.shared_hbm and not storage_is_argument(storage):
        raise NkiValidationError(
            "return-buffer",
            f"the kernel returns {storage.describe()} in {tensor.buffer.value}; allocate results "
            f"with buffer=nl.shared_hbm.",
        )
    if not (tensor.covers_storage and tensor.is_contiguous()):
        raise NkiValidationError(
            "return-view",
            f"the kernel returns a view {list(tensor.shape)} of part of {storage.describe()}; "
            f"return the whole tensor.",
        )
    try:
        storage.require_written(tensor, "the result")
    except NkiUninitializedRead as error:
        error.rule = "return-unwritten"
        raise
    return np.asarray(tensor.array).astype(PRECISE[tensor.dtype].storage, copy=False)


def _require_known_kind(value, name):
    """Language guide, "NKI Values": what a kernel can be given besides tensors and containers."""
    if isinstance(value, (int, np.integer)) and not -(2**31) <= value < 2**32:
        raise NkiArgumentError(
            "argument-type", f"argument {name} is {value}; integers in a kernel have 32 bits."
        )
    # A slice is not in the guide's list, but part of every index that a kernel may write.
    known = (int, float, str, slice, np.number, np.bool_, enum.Enum, NKIObject)
    if value is not None and not isinstance(value, known) and not callable(value):
        raise NkiArgumentError(
            "argument-type",
            f"argument {name} is a {type(value).__name__}; a kernel takes tensors, None, numbers, "
            f"strings, enum members, functions, tuples, dicts with string keys and instances of "
            f"nl.NKIObject classes.",
        )


def storage_is_argument(storage):
    """Whether the storage holds an array of the caller (it was not allocated by the kernel)."""
    return storage.site is None


def _array_of_torch(torch, value, name):
    if value.device.type != "cpu":
        raise NkiArgumentError(
            "argument-device",
            f"argument {name} is on device {value.device}; the emulator takes CPU tensors.",
        )
    value = value.detach()
    special = _TORCH_ONLY.get(str(value.dtype))
    if special is None:
        return value.numpy()
    integer, dtype = special
    return value.view(getattr(torch, integer)).numpy().view(PRECISE[dtype].storage)


def _torch_of_array(array):
    torch = sys.modules["torch"]
    name = NAME_OF[array.dtype]
    for torch_name, (integer, dtype) in _TORCH_ONLY.items():
        if dtype == name:
            bits = torch.from_numpy(array.view(integer))
            return bits.view(getattr(torch, torch_name.removeprefix("torch.")))
    return torch.from_numpy(array)
