"""NKI data types: their names, their NumPy storage, and conversion to and from float32.

An NKI dtype is a string at run time (``nl.float32 == "float32"``). Tiles are stored in the real
type (``ml_dtypes`` for those NumPy lacks), the engines compute in float32, and results are rounded
to nearest, ties to even, when they are stored; float to integer also saturates (NKI 0.6 release
notes). With ``NKI_PRECISE_FP=0`` low-precision floats are stored as float32, as in the official
simulator: sizes in memory still count the real type.

bfloat16 and float16 are converted here with integer arithmetic: it gives bit for bit what
``astype`` gives and is 2 to 5 times faster than NumPy's loops for these types.
"""

import os
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from .errors import NkiValidationError

FLOAT, INTEGER, PACKED = "float", "integer", "packed"


@dataclass(frozen=True, eq=False)
class DTypeInfo:
    """One NKI dtype in one storage mode.

    ``nbytes`` is the size on the chip; ``storage`` the NumPy dtype that holds an element and
    ``itemsize`` its size here (they differ only with ``NKI_PRECISE_FP=0``); ``raw`` the unsigned
    integer of the same size, for bit copies.
    """

    name: str
    kind: str
    nbytes: int
    storage: np.dtype
    raw: np.dtype

    @property
    def itemsize(self):
        """Bytes of one element in the emulator's memory."""
        return self.storage.itemsize


# name: (kind, NumPy storage). tfloat32 occupies 32 bits with a 10-bit mantissa. A packed type holds
# four small floats in one element, which only MX instructions look into.
_TABLE = {
    "bool": (INTEGER, np.bool_),
    "int8": (INTEGER, np.int8),
    "int16": (INTEGER, np.int16),
    "int32": (INTEGER, np.int32),
    "uint8": (INTEGER, np.uint8),
    "uint16": (INTEGER, np.uint16),
    "uint32": (INTEGER, np.uint32),
    "float16": (FLOAT, np.float16),
    "float32": (FLOAT, np.float32),
    "bfloat16": (FLOAT, ml_dtypes.bfloat16),
    "tfloat32": (FLOAT, np.float32),
    "float8_e4m3": (FLOAT, ml_dtypes.float8_e4m3),
    "float8_e4m3fn": (FLOAT, ml_dtypes.float8_e4m3fn),
    "float8_e5m2": (FLOAT, ml_dtypes.float8_e5m2),
    "float8_e8m0fnu": (FLOAT, ml_dtypes.float8_e8m0fnu),
    "float8_e5m2_x4": (PACKED, np.uint32),
    "float8_e4m3fn_x4": (PACKED, np.uint32),
    "float4_e2m1fn_x4": (PACKED, np.uint16),
}

_RAW = {1: np.dtype(np.uint8), 2: np.dtype(np.uint16), 4: np.dtype(np.uint32)}


def _table(precise):
    table = {}
    for name, (kind, storage) in _TABLE.items():
        real = np.dtype(storage)
        held = real
        if not precise and kind == FLOAT and name != "float8_e8m0fnu":
            held = np.dtype(np.float32)
        table[name] = DTypeInfo(name, kind, real.itemsize, held, _RAW[held.itemsize])
    return table


PRECISE = _table(precise=True)
RELAXED = _table(precise=False)

FLOAT32_NAMES = ("float32", "tfloat32")
NAMES = tuple(_TABLE)

# NumPy dtype -> NKI name, for kernel arguments (tfloat32 and packed types have none of their own).
NAME_OF = {
    np.dtype(storage): name
    for name, (kind, storage) in _TABLE.items()
    if kind != PACKED and name != "tfloat32"
}


def active_table():
    """The dtype table of this process: real types, or float32 when ``NKI_PRECISE_FP=0``."""
    value = os.environ.get("NKI_PRECISE_FP", "1")
    if value not in ("0", "1"):
        raise NkiValidationError("precise-fp", f"NKI_PRECISE_FP={value!r}; allowed: 0 or 1.")
    return PRECISE if value == "1" else RELAXED


def lookup(table, dtype):
    """The :class:`DTypeInfo` of an NKI dtype name."""
    info = table.get(dtype) if isinstance(dtype, str) else None
    if info is None:
        raise NkiValidationError(
            "dtype",
            f"{dtype!r} is not an NKI dtype; use a name of nki.language, e.g. nl.float32. "
            f"Known: {', '.join(NAMES)}.",
        )
    return info


def to_float32(array, info):
    """``array`` (storage of ``info``) as float32: the array itself if it is float32 already."""
    storage = array.dtype
    if storage == np.float32:
        return array
    if info.name == "bfloat16":
        wide = array.view(np.uint16).astype(np.uint32)
        np.left_shift(wide, 16, out=wide)
        return wide.view(np.float32)
    if info.name == "float16":
        return _float16_to_float32(array.view(np.uint16))
    return array.astype(np.float32)


def store_float32(target, info, values):
    """Write float32 ``values`` into the storage array ``target`` of dtype ``info``, rounding."""
    if target.dtype == np.float32:
        target[...] = round_tfloat32(values) if info.name == "tfloat32" else values
    elif info.name == "bfloat16":
        target.view(np.uint16)[...] = _float32_to_bfloat16(values)
    elif info.name == "float16":
        target.view(np.uint16)[...] = _float32_to_float16(values)
    elif info.kind == INTEGER:
        target[...] = round_to_integer(values, target.dtype)
    else:
        target[...] = values.astype(target.dtype)


def _has_nan(values):
    """Whether a float32 array holds a NaN (the maximum propagates it)."""
    largest = np.maximum.reduce(values, axis=None)
    return bool(largest != largest)


def _float32_to_bfloat16(values):
    bits = values.view(np.uint32)
    rounded = np.right_shift(bits, 16)
    np.bitwise_and(rounded, 1, out=rounded)
    np.add(rounded, 0x7FFF, out=rounded)
    np.add(rounded, bits, out=rounded)
    np.right_shift(rounded, 16, out=rounded)
    if _has_nan(values):
        np.copyto(rounded, np.right_shift(bits, 16) | 0x7FC0, where=np.isnan(values))
    return rounded


def _float16_to_float32(bits):
    wide = bits.astype(np.uint32)
    sign = np.bitwise_and(wide, 0x8000)
    np.left_shift(sign, 16, out=sign)
    np.bitwise_and(wide, 0x7FFF, out=wide)
    np.left_shift(wide, 13, out=wide)
    # Seen as float32 the exponent bias is off by 112; the multiplication also makes subnormals
    # right. Infinity and NaN come out as 2**16 and more, which no finite float16 reaches.
    result = wide.view(np.float32)
    np.multiply(result, np.float32(2.0**112), out=result)
    if np.maximum.reduce(result, axis=None) >= np.float32(65536.0):
        special = result >= np.float32(65536.0)
        np.copyto(wide, (wide & 0x007FFFFF) | 0x7F800000, where=special)
    np.bitwise_or(wide, sign, out=wide)
    return result


def _float32_to_float16(values):
    bits = values.view(np.uint32)
    magnitude = np.bitwise_and(bits, 0x7FFFFFFF)
    # Normal numbers: rebias the exponent and round the 13 lost bits to even.
    half = np.right_shift(magnitude, 13)
    np.bitwise_and(half, 1, out=half)
    np.add(half, 0xFFF, out=half)
    np.add(half, magnitude, out=half)
    np.subtract(half, (127 - 15) << 23, out=half)
    np.right_shift(half, 13, out=half)
    # Smaller than 2**-14: adding 0.5 leaves the rounded subnormal in the low mantissa bits.
    small = magnitude < 0x38800000
    if small.any():
        lifted = magnitude.view(np.float32) + np.float32(0.5)
        np.copyto(half, lifted.view(np.uint32) - np.uint32(0x3F000000), where=small)
    # 65520 and more rounds to infinity; NaN keeps its upper payload and stays quiet.
    large = magnitude >= 0x477FF000
    if large.any():
        nan = np.right_shift(magnitude, 13) & 0x3FF | 0x7E00
        np.copyto(half, np.where(magnitude > 0x7F800000, nan, np.uint32(0x7C00)), where=large)
    np.bitwise_or(half, np.right_shift(bits, 16) & 0x8000, out=half)
    return half


def round_tfloat32(values):
    """Round to the 10-bit mantissa of tfloat32, ties to even; infinities and NaN pass."""
    bits = values.view(np.uint32)
    rounded = bits + (np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1)))
    rounded &= np.uint32(0xFFFFE000)
    return np.where(np.isfinite(values), rounded.view(np.float32), values)


def round_to_integer(values, storage):
    """Float32 ``values`` as integers: nearest, ties to even, saturating; NaN becomes 0.

    The saturation is documented (NKI 0.6); what NaN gives is not, so 0 is the emulator's choice.
    """
    if storage == np.bool_:
        return values != 0
    limits = np.iinfo(storage)
    rounded = np.rint(values.astype(np.float64))
    np.nan_to_num(rounded, copy=False, nan=0.0, posinf=limits.max, neginf=limits.min)
    np.clip(rounded, limits.min, limits.max, out=rounded)
    return rounded.astype(storage)
