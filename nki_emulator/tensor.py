"""NkiTensor: a strided view of a storage, and every way to derive one view from another.

A view is (storage, offset, shape, strides, dtype), in elements, exactly as the NKI language guide
describes it. Deriving a view copies nothing and never clips: an index outside the tensor is an
error. The NumPy array over the same memory is made when an instruction needs it.

On the chip dimension 0 is the partition: it stays outermost, is never stepped over or broadcast,
an integer index keeps it at size 1, and a tensor has at least two dimensions.
"""

import math

import numpy as np

from . import views
from .dtypes import lookup
from .errors import NkiValidationError
from .objects import NKIObject
from .regions import MemoryRegion, is_on_chip
from .shown import shown


class DynamicSlice:
    """``nl.ds(start, size)``: the elements [start, start + size) of a dimension."""

    __slots__ = ("start", "size")

    def __init__(self, start, size):
        self.start = start
        self.size = size

    def __repr__(self):
        return f"ds({self.start}, {self.size})"


class NkiTensor(NKIObject):
    """A tensor in SBUF, PSUM or HBM, or a view of one.

    Attributes: ``shape``, ``strides`` and ``offset`` (elements), ``dtype`` (a string), ``buffer``,
    ``name``, ``ndim``, ``size``. Tensors are made with ``nl.ndarray``.
    """

    __slots__ = ("shape", "strides", "offset", "dtype", "buffer", "info", "storage", "_exact",
                 "_array", "_region", "_size")  # fmt: skip

    def __init__(self, shape, dtype, storage, buffer=MemoryRegion.sbuf, name=""):
        """Bind a tensor of ``shape`` and ``dtype`` to the start of an existing storage."""
        self.shape = tuple(shape)
        self.strides = views.row_major(self.shape)
        self.offset = 0
        self.dtype = dtype
        self.buffer = buffer
        self.storage = storage
        self.info = lookup(storage.table, dtype)
        self._exact = True
        self._array = None
        self._region = None
        self._size = None

    @property
    def name(self):
        """Debug name given to ``nl.ndarray``."""
        return self.storage.name

    @property
    def ndim(self):
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self):
        """Number of elements."""
        if self._size is None:
            self._size = math.prod(self.shape)
        return self._size

    # What the emulator asks of a view.

    @property
    def array(self):
        """The view as a NumPy array over the storage's memory (no copy)."""
        if self._array is None:
            itemsize = self.info.storage.itemsize
            self._array = np.ndarray(
                self.shape,
                self.info.storage,
                self.storage.memory,
                self.offset * itemsize,
                [stride * itemsize for stride in self.strides],
            )
        return self._array

    @property
    def region(self):
        """What identifies the elements the view addresses within its storage."""
        if self._region is None:
            self._region = (self.offset, self.shape, self.strides, self.info.storage.itemsize)
        return self._region

    @property
    def covers_storage(self):
        """Whether the view certainly addresses every element of its storage."""
        return self._exact and self.size * self.info.storage.itemsize == self.storage.nbytes

    @property
    def start_partition(self):
        """First partition of an on-chip view."""
        return self.storage.partition + self.offset // self.pitch

    @property
    def pitch(self):
        """Elements (of the view's dtype) from one partition of the tile to the next."""
        storage = self.storage
        if storage.info is self.info:
            return storage.pitch
        return storage.pitch * storage.info.itemsize // self.info.itemsize

    def describe(self):
        """Short description for messages: dtype, shape, buffer and name."""
        name = f" {self.name!r}" if self.name else ""
        return f"{self.dtype}{list(self.shape)} {self.buffer.value}{name}"

    def _view(self, offset, shape, strides, exact=True):
        view = object.__new__(NkiTensor)
        view.offset = offset
        view.shape = shape
        view.strides = strides
        view.dtype = self.dtype
        view.buffer = self.buffer
        view.storage = self.storage
        view.info = self.info
        view._exact = exact and self._exact
        view._array = None
        view._region = None
        view._size = None
        return view

    # Queries of the public API.

    def is_contiguous(self):
        """Whether the view is dense and row-major (on the chip: within each partition)."""
        first = 1 if is_on_chip(self.buffer) else 0
        expected = views.row_major(self.shape)
        return all(
            size == 1 or stride == dense
            for size, stride, dense in list(zip(self.shape, self.strides, expected))[first:]
        )

    def get_pattern(self):
        """The access pattern ``[[stride, count], ...]``, outermost dimension first."""
        return [[stride, count] for stride, count in zip(self.strides, self.shape)]

    def is_indirect(self):
        """Whether an index known only at run time takes part in the address; never, here."""
        return False

    # Indexing.

    def __getitem__(self, key):
        """View of the indexed elements: integers, slices, ``...`` and ``nl.ds``."""
        if type(key) is not tuple:
            key = (key,)
        shape, strides = self.shape, self.strides
        rank = len(shape)
        if len(key) != rank:
            key = self._full_key(key)
        chip = self.buffer is MemoryRegion.sbuf or self.buffer is MemoryRegion.psum
        offset = self.offset
        new_shape, new_strides = [], []
        last_dropped = None
        for axis in range(rank):
            index = key[axis]
            size, stride = shape[axis], strides[axis]
            if type(index) is slice:
                start, stop, step = index.start, index.stop, index.step
                if start is None and stop is None and step is None:
                    new_shape.append(size)
                    new_strides.append(stride)
                    continue
                start, count, step = self._slice_bounds(axis, start, stop, step, size, chip)
            elif index is Ellipsis:
                return self[self._full_key(key)]
            elif isinstance(index, DynamicSlice):
                start, count, step = self._slice_bounds(
                    axis, index.start, index.start + index.size, None, size, chip
                )
            else:
                start = self._integer(axis, index, size)
                offset += start * stride
                if chip and axis == 0:
                    new_shape.append(1)
                    new_strides.append(stride)
                else:
                    last_dropped = stride
                continue
            offset += start * stride
            new_shape.append(count)
            new_strides.append(stride * step)
        if len(new_shape) < (2 if chip else 1):
            new_shape.append(1)
            new_strides.append(last_dropped)
        return self._view(offset, tuple(new_shape), tuple(new_strides))

    def _full_key(self, key):
        rank = len(self.shape)
        dots = [position for position, index in enumerate(key) if index is Ellipsis]
        if len(dots) > 1:
            raise NkiValidationError("index", "an index may hold `...` once.")
        named = len(key) - len(dots)
        if named > rank:
            raise NkiValidationError(
                "index", f"{named} indices for a tensor of shape {list(self.shape)}."
            )
        fill = (slice(None),) * (rank - named)
        at = dots[0] if dots else len(key)
        return key[:at] + fill + key[at + len(dots) :]

    def _integer(self, axis, index, size):
        given, index = index, views.integer(index)
        if index is None:
            raise NkiValidationError(
                "index",
                f"index {given!r} of dimension {axis}; allowed: integers, slices, `...`, nl.ds. "
                f"(A run-time index goes through .select, .vector_select or .ap.)",
            )
        if not -size <= index < size:
            raise NkiValidationError(
                "out-of-bounds",
                f"index {index} of dimension {axis} is outside 0..{size - 1} (shape "
                f"{list(self.shape)}).",
            )
        return index + size if index < 0 else index

    def _slice_bounds(self, axis, start, stop, step, size, chip):
        step = 1 if step is None else step
        start = 0 if start is None else start
        stop = size if stop is None else stop
        if not (type(start) is int and type(stop) is int and type(step) is int):
            start, stop, step = (self._slice_integer(axis, n) for n in (start, stop, step))
        low = start + size if start < 0 else start
        high = stop + size if stop < 0 else stop
        if step < 1:
            raise NkiValidationError(
                "slice-step", f"step {step} of dimension {axis}; a step is at least 1."
            )
        if low < 0 or high > size or low >= high:
            raise NkiValidationError(
                "out-of-bounds",
                f"slice {start}:{stop} of dimension {axis} is "
                f"{'empty or ' if low >= high else ''}outside 0..{size} (shape "
                f"{list(self.shape)}); NKI does not clip.",
            )
        if chip and axis == 0 and step != 1 and high - low > step:
            raise NkiValidationError(
                "partition-step",
                f"step {step} over partitions; an access covers consecutive partitions.",
            )
        return low, (high - low + step - 1) // step, step

    def _slice_integer(self, axis, value):
        found = views.integer(value)
        if found is None:
            raise NkiValidationError(
                "index", f"slice bound {value!r} of dimension {axis} is not an integer."
            )
        return found

    def __setitem__(self, key, value):
        raise NkiValidationError(
            "tensor-assignment",
            "a tensor is not assigned to in Python; use nisa.tensor_copy or nisa.memset on the "
            "chip, nisa.dma_copy between HBM and SBUF.",
        )

    def slice(self, dim, start, end, step=1):
        """Elements [start, end) of dimension ``dim``, every ``step``-th."""
        dim = self._dim(dim)
        start, end = self._slice_integer(dim, start), self._slice_integer(dim, end)
        if start < 0 or end < 0:
            raise NkiValidationError(
                "out-of-bounds", f"slice {start}:{end} of dimension {dim}: 0 <= start < end."
            )
        key = [slice(None)] * self.ndim
        key[dim] = slice(start, end, step)
        return self[tuple(key)]

    def select(self, dim, index):
        """One element of dimension ``dim``, which is removed (a partition stays at size 1).

        ``index`` may also be a register or a (1, 1) tile in SBUF, read when an instruction runs;
        not for partitions.
        """
        dim = self._dim(dim)
        if hasattr(index, "describe"):
            return dynamic.selected(self, dim, index)
        number = views.integer(index)
        if number is None:
            return dynamic.selected(self, dim, index)
        if number < 0:
            raise NkiValidationError(
                "out-of-bounds", f"select({dim}, {index}): 0 <= index < {self.shape[dim]}."
            )
        key = [slice(None)] * self.ndim
        key[dim] = index
        return self[tuple(key)]

    def vector_select(self, dim, vector_offset):
        """Row ``vector_offset[p]`` of an HBM tensor for every p; shape (P, *shape[1:]).

        ``vector_offset`` is a (P, 1) tile of int32 or uint32 in SBUF, read when a DMA runs.
        """
        return dynamic.vector_selected(self, self._dim(dim), vector_offset)

    # Shape changes.

    def permute(self, dims):
        """The dimensions in the order ``dims``."""
        given, dims = dims, views.integers(dims)
        if dims is None or sorted(dims) != list(range(self.ndim)):
            raise NkiValidationError(
                "permute", f"dims={given!r} is not a permutation of 0..{self.ndim - 1}."
            )
        if is_on_chip(self.buffer) and dims[0] != 0:
            raise NkiValidationError(
                "partition-dim", f"permute{dims}: the partition dimension must stay first."
            )
        return self._view(
            self.offset,
            tuple(self.shape[dim] for dim in dims),
            tuple(self.strides[dim] for dim in dims),
        )

    def broadcast(self, dim, size):
        """Repeat a dimension of size 1 ``size`` times (stride 0)."""
        dim = self._dim(dim)
        if self.shape[dim] != 1:
            raise NkiValidationError(
                "broadcast", f"dimension {dim} has size {self.shape[dim]}; only size 1 broadcasts."
            )
        given, size = size, views.integer(size)
        if size is None or size < 1:
            raise NkiValidationError(
                "broadcast", f"size {given!r}; it must be an integer of at least 1."
            )
        self._not_partition(dim, "broadcast")
        shape = self.shape[:dim] + (size,) + self.shape[dim + 1 :]
        strides = self.strides[:dim] + (0,) + self.strides[dim + 1 :]
        return self._view(self.offset, shape, strides, exact=size == 1)

    def expand_dim(self, dim):
        """Insert a dimension of size 1 at position ``dim``."""
        dim = self._dim(dim, self.ndim + 1)
        self._not_partition(dim, "expand_dim")
        stride = self.strides[dim] * self.shape[dim] if dim < self.ndim else 1
        return self._view(
            self.offset,
            self.shape[:dim] + (1,) + self.shape[dim:],
            self.strides[:dim] + (stride,) + self.strides[dim:],
        )

    def squeeze_dim(self, dim):
        """Remove a dimension of size 1."""
        dim = self._dim(dim)
        self._not_partition(dim, "squeeze_dim")
        if self.shape[dim] != 1:
            raise NkiValidationError(
                "squeeze", f"dimension {dim} has size {self.shape[dim]}; only size 1 is removed."
            )
        least = 2 if is_on_chip(self.buffer) else 1
        if self.ndim <= least:
            raise NkiValidationError(
                "squeeze", f"a {self.buffer.value} tensor keeps at least {least} dimensions."
            )
        return self._view(
            self.offset,
            self.shape[:dim] + self.shape[dim + 1 :],
            self.strides[:dim] + self.strides[dim + 1 :],
        )

    def reshape_dim(self, dim, shape):
        """Split dimension ``dim`` into ``shape``, in which one -1 is inferred."""
        dim = self._dim(dim)
        sizes = views.inferred(shape, self.shape[dim])
        if sizes is None:
            raise NkiValidationError(
                "reshape", f"{shape!r} does not multiply to {self.shape[dim]} (dim {dim})."
            )
        if len(sizes) > 1:
            self._not_partition(dim, "reshape_dim")
        stride = self.strides[dim]
        return self._view(
            self.offset,
            self.shape[:dim] + sizes + self.shape[dim + 1 :],
            self.strides[:dim]
            + tuple(inner * stride for inner in views.row_major(sizes))
            + self.strides[dim + 1 :],
        )

    def flatten_dims(self, start_dim, end_dim):
        """Merge the dimensions start_dim..end_dim (inclusive), which must lie densely."""
        start_dim, end_dim = self._dim(start_dim), self._dim(end_dim)
        if start_dim > end_dim:
            raise NkiValidationError("flatten", f"start_dim {start_dim} > end_dim {end_dim}.")
        self._not_partition(start_dim, "flatten_dims")
        stop = end_dim + 1
        merged = math.prod(self.shape[start_dim:stop])
        strides = views.reshape(self.shape[start_dim:stop], self.strides[start_dim:stop], (merged,))
        if strides is None:
            raise NkiValidationError(
                "reshape-layout",
                f"dimensions {start_dim}..{end_dim} with strides "
                f"{list(self.strides[start_dim:stop])} are not dense; they cannot be merged "
                f"without a copy.",
            )
        return self._view(
            self.offset,
            self.shape[:start_dim] + (merged,) + self.shape[stop:],
            self.strides[:start_dim] + strides + self.strides[stop:],
        )

    def reshape(self, shape):
        """The same elements, in the same order, as ``shape``; an error if it takes a copy."""
        sizes = views.inferred(shape, self.size)
        if sizes is None:
            raise NkiValidationError(
                "reshape",
                f"shape {shape!r} does not hold the {self.size} elements of {list(self.shape)}.",
            )
        if is_on_chip(self.buffer):
            if len(sizes) < 2 or sizes[0] != self.shape[0]:
                raise NkiValidationError(
                    "partition-dim",
                    f"reshape {list(self.shape)} to {list(sizes)}: an on-chip tensor keeps its "
                    f"partition dimension {self.shape[0]} and has at least two dimensions.",
                )
            strides = views.reshape(self.shape[1:], self.strides[1:], sizes[1:])
            strides = None if strides is None else self.strides[:1] + strides
        else:
            strides = views.reshape(self.shape, self.strides, sizes)
        if strides is None:
            raise NkiValidationError(
                "reshape-layout",
                f"shape {list(self.shape)} with strides {list(self.strides)} cannot become "
                f"{list(sizes)} without a copy.",
            )
        return self._view(self.offset, sizes, strides)

    def rearrange(self, src_pattern, dst_pattern, fixed_sizes=None):
        """Split, reorder and merge dimensions by name, as in einops."""
        split, order, merged = views.rearrangement(
            self.shape, src_pattern, dst_pattern, fixed_sizes
        )
        return self.reshape(split).permute(order).reshape(merged)

    # Access patterns and dtypes.

    def ap(
        self, pattern, offset=None, scalar_offset=None, vector_offset=None, indirect_dim=0,
        dtype=None,
    ):  # fmt: skip
        """View with an explicit ``[[stride, count], ...]`` pattern over the storage.

        ``scalar_offset``, a register or a (1, 1) tile in SBUF, adds that many steps of dimension
        ``indirect_dim`` of this tensor's shape when an instruction runs. ``vector_offset``, a
        (P, 1) tile in SBUF, holds a row of an HBM tensor for each partition of the access.

        The documents disagree on an explicit ``offset`` when the tensor is itself an offset view
        (the stub adds it, the guides ignore the view); the emulator refuses that case.
        """
        info = self.info if dtype is None else lookup(self.storage.table, dtype)
        base, remainder = divmod(self.offset * self.info.itemsize, info.itemsize)
        if remainder:
            raise NkiValidationError(
                "ap-offset", f"offset {self.offset} is not on a boundary of {info.name}."
            )
        self._require_same_sizes(info)
        if offset is not None:
            if base != 0:
                raise NkiValidationError(
                    "ap-offset",
                    "ap(offset=...) on a view that has an offset itself is documented in two "
                    "ways; call ap on the tensor that nl.ndarray returned.",
                )
            base = self._slice_integer(0, offset)
        strides, shape = self._pattern(pattern)
        view = self._view(base, shape, strides, exact=False)
        view.dtype, view.info = info.name, info
        if scalar_offset is None and vector_offset is None:
            self._require_inside(view)
            return view
        if vector_offset is None:
            self._require_inside(view)
        else:
            self._require_inside(view._view(base, (1, *shape[1:]), strides))
        return dynamic.access_pattern(self, view, scalar_offset, vector_offset, indirect_dim)

    def _pattern(self, pattern):
        listed = pattern if isinstance(pattern, (tuple, list)) else [None]
        pairs = [views.integers(pair) for pair in listed]
        if any(pair is None or len(pair) != 2 for pair in pairs):
            raise NkiValidationError(
                "ap-pattern", f"pattern={pattern!r}; expected [[stride, count], ...], integers."
            )
        if not pairs or any(count < 1 for _, count in pairs):
            raise NkiValidationError(
                "ap-pattern", f"pattern={pattern!r}; every count must be at least 1."
            )
        return tuple(stride for stride, _ in pairs), tuple(count for _, count in pairs)

    def _require_inside(self, view):
        """Refuse a pattern that leaves the storage or, on the chip, a partition."""
        steps = [stride * (count - 1) for stride, count in zip(view.strides, view.shape)]
        if is_on_chip(self.buffer):
            pitch = view.pitch
            if len(view.shape) < 2:
                raise NkiValidationError(
                    "ap-pattern", "an on-chip pattern has the partition pair and at least one more."
                )
            if view.strides[0] != pitch:
                raise NkiValidationError(
                    "ap-partition-stride",
                    f"the first pair has stride {view.strides[0]}; on the chip it is the partition "
                    f"and its stride is the tile's free size, {pitch} elements of {view.dtype}.",
                )
            within = view.offset % pitch
            low = within + sum(step for step in steps[1:] if step < 0)
            high = within + sum(step for step in steps[1:] if step > 0)
            last = view.offset // pitch + view.shape[0]
            inside = view.offset >= 0 and 0 <= low and high < pitch
            inside = inside and last <= self.storage.shape[0]
        else:
            limit = self.storage.nbytes // view.info.itemsize
            low = view.offset + sum(step for step in steps if step < 0)
            high = view.offset + sum(step for step in steps if step > 0)
            inside = 0 <= low and high < limit
        if not inside:
            raise NkiValidationError(
                "out-of-bounds",
                f"pattern {view.get_pattern()} with offset {view.offset} leaves the tensor "
                f"{self.storage.describe()}.",
            )

    def view(self, dtype):
        """The same bits as another dtype; the last dimension is rescaled."""
        info = lookup(self.storage.table, dtype)
        self._require_same_sizes(info)
        old, new = self.info.itemsize, info.itemsize
        shape, strides, offset = self.shape, self.strides, self.offset
        if old != new:
            if shape[-1] != 1 and strides[-1] != 1:
                raise NkiValidationError(
                    "view-dtype",
                    f"view(dtype) needs a dense last dimension; it has stride {strides[-1]}.",
                )
            amounts = [shape[-1], offset, *(s for s, n in zip(strides[:-1], shape) if n > 1)]
            if any(amount * old % new for amount in amounts):
                raise NkiValidationError(
                    "view-dtype",
                    f"shape {list(shape)}, strides {list(strides)}, offset {offset} of "
                    f"{self.dtype} do not fall on whole elements of {dtype}.",
                )
            shape = shape[:-1] + (shape[-1] * old // new,)
            strides = tuple(stride * old // new for stride in strides[:-1]) + (1,)
            offset = offset * old // new
        view = self._view(offset, shape, strides)
        view.dtype, view.info = info.name, info
        return view

    reinterpret_cast = view

    def indirect(self, index, num_elem=None):
        """The columns of this tile (P, F) that ``index`` lists: shape (P, num_elem) (gen4).

        ``index`` is a tile (P, K) of integers in SBUF. Column i is ``index[i % G, i // G]``, with
        G = 32 for an operand of the tensor engine and 16 for the other engines.
        """
        return dynamic.indirect(self, index, num_elem)

    def _require_same_sizes(self, info):
        """With NKI_PRECISE_FP=0 elements are wider here than on the chip; bits cannot be recast."""
        for which in (self.info, info):
            if info is not self.info and which.itemsize != which.nbytes:
                raise NkiValidationError(
                    "view-dtype",
                    f"{self.dtype} cannot be seen as {info.name} with NKI_PRECISE_FP=0, which "
                    f"stores low-precision floats as float32.",
                )

    def _dim(self, dim, rank=None):
        rank = self.ndim if rank is None else rank
        found = views.integer(dim)
        if found is None or not -rank <= found < rank:
            raise NkiValidationError(
                "dim", f"dimension {dim!r} of a tensor of shape {list(self.shape)}."
            )
        return found % rank

    def _not_partition(self, dim, method):
        if dim == 0 and is_on_chip(self.buffer):
            raise NkiValidationError(
                "partition-dim", f"{method} cannot act on the partition dimension (dim 0)."
            )

    # What a tensor does not do.

    def _no_arithmetic(self, *_):
        raise NkiValidationError(
            "tensor-arithmetic",
            "Python operators do not work on tensors; use nisa.tensor_tensor, nisa.tensor_scalar, "
            "nisa.activation or an nki.language function.",
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _no_arithmetic
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = _no_arithmetic
    __pow__ = __rpow__ = __matmul__ = __rmatmul__ = __neg__ = __pos__ = __abs__ = _no_arithmetic
    __lt__ = __le__ = __gt__ = __ge__ = __and__ = __or__ = __xor__ = __invert__ = _no_arithmetic
    __lshift__ = __rshift__ = __float__ = __int__ = _no_arithmetic

    def __eq__(self, other):
        """`tensor == None` is False; the elements of a tensor are not known when it is built."""
        if other is None:
            return False
        raise NkiValidationError(
            "tensor-condition",
            "a tensor is compared with ==; its content is not known when the kernel is built. "
            "Only None can be compared with it (`tensor == None`); compare elements with "
            "nisa.tensor_tensor or nl.equal.",
        )

    __hash__ = object.__hash__

    def __array__(self, *_, **__):
        raise NkiValidationError(
            "tensor-condition",
            "a tensor cannot become a NumPy array inside a kernel: its content is not known when "
            "the kernel is built. print(tensor) and nl.device_print show values.",
        )

    def __bool__(self):
        raise NkiValidationError(
            "tensor-condition",
            "a tensor has no truth value: its content is not known when the kernel is built. "
            "To test for an absent tensor write `tensor != None`.",
        )

    def __iter__(self):
        raise NkiValidationError("tensor-iteration", "a tensor cannot be iterated over; index it.")

    def __repr__(self):
        """Description and values, for print() and a debugger."""
        return shown(self)


# At the end, because a dynamic view is a tensor too.
from . import dynamic  # noqa: E402
