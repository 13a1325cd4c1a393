"""Views whose address is known only at run time.

Three kinds, from `deep-dives/nki-aps.rst` and the stub of NkiTensor:

- *scalar*: one index, in a register or a (1, 1) tile in SBUF, moves the whole view by ``scale``
  elements a step (`.ap(scalar_offset=)`, `.select(dim, index)`);
- *vector*: partition p of the access reads row ``index[p]`` of an HBM tensor
  (`.ap(vector_offset=)`, `.vector_select`);
- *indirect*: an on-chip operand whose columns are listed in a tile of offsets (`.indirect`, gen4).

A view holds at most one. The index is read when an instruction runs: `addresses.py`.
"""

import math

from . import rules
from .errors import NkiValidationError
from .regions import MemoryRegion, is_hbm, is_on_chip
from .registers import VirtualRegister
from .tensor import NkiTensor

SCALAR, VECTOR, INDIRECT = "scalar", "vector", "indirect"

# The dtypes of run-time indices in the documents' examples; none says what others would mean.
INDEX_DTYPES = ("int32", "uint32")


class DynamicView(NkiTensor):
    """A view of one of the kinds above.

    ``index`` is the register or tensor; index i adds ``i * scale`` elements to ``offset`` and is in
    bounds below ``limit``. ``walked`` is the stride of the dimensions that walk along the indexed
    one, or None if there are none: those take part in the indirection and stay as they are.
    """

    __slots__ = ("kind", "index", "scale", "limit", "walked")

    def _view(self, offset, shape, strides, exact=True):
        return _dynamic(
            super()._view(offset, shape, strides, exact=False),
            self.kind, self.index, self.scale, self.limit, self.walked,
        )  # fmt: skip

    def static(self, offset):
        """The view without its index, from element ``offset`` on."""
        return super()._view(offset, self.shape, self.strides, exact=False)

    def is_indirect(self):
        """Whether an index known only at run time takes part in the address; always, here."""
        return True

    def describe(self):
        """Short description for messages."""
        index = self.index.describe() if self.kind == SCALAR else f"{list(self.index.shape)} tile"
        return f"{super().describe()} with {self.kind} index {index}"

    @property
    def array(self):
        """A run-time address is resolved by instructions only."""
        raise NkiValidationError(
            "dynamic-operand",
            f"{self.describe()} has an address that is known only at run time; copy it to a tile "
            f"first (nisa.dma_copy, nisa.tensor_copy).",
        )

    def __repr__(self):
        return f"NkiTensor({self.describe()})"

    # Views of a dynamic view.

    def __getitem__(self, key):
        full = self._full_key(key if type(key) is tuple else (key,))
        for dim, index in enumerate(full):
            whole = isinstance(index, slice) and index.step in (None, 1)
            whole = whole and index.start in (None, 0)
            if self._takes_part(dim) and not (whole and index.stop in (None, self.shape[dim])):
                self._refuse(f"slice or select dimension {dim}, which takes part in the index")
        return super().__getitem__(full)

    def select(self, dim, index):
        """One element of a dimension that takes no part in the run-time index."""
        if isinstance(index, (NkiTensor, VirtualRegister)):
            self._refuse("take a second run-time index")
        return super().select(dim, index)

    def permute(self, dims):
        """The dimensions in the order ``dims``; the indexed one stays first."""
        if self.kind != SCALAR and tuple(dims)[:1] != (0,):
            self._refuse("move dimension 0")
        self._require_free("permute")
        return super().permute(dims)

    def broadcast(self, dim, size):
        """Repeat a dimension of size 1."""
        self._not_first(dim, "broadcast")
        return super().broadcast(dim, size)

    def expand_dim(self, dim):
        """Insert a dimension of size 1, not before the indexed one."""
        self._not_first(dim, "expand_dim")
        return super().expand_dim(dim)

    def squeeze_dim(self, dim):
        """Remove a dimension of size 1 other than the indexed one."""
        self._not_first(dim, "squeeze_dim")
        return super().squeeze_dim(dim)

    def reshape_dim(self, dim, shape):
        """Split a dimension other than the indexed one."""
        if len(shape) > 1:
            self._not_first(dim, "reshape_dim")
        return super().reshape_dim(dim, shape)

    def flatten_dims(self, start_dim, end_dim):
        """Merge dimensions other than the indexed one."""
        self._not_first(start_dim, "flatten_dims")
        return super().flatten_dims(start_dim, end_dim)

    def reshape(self, shape):
        """The same elements as ``shape``; the indexed dimension keeps its size."""
        self._require_free("reshape")
        if self.kind == VECTOR and (len(shape) < 1 or shape[0] != self.shape[0]):
            self._refuse("change the size of dimension 0")
        return super().reshape(shape)

    def view(self, dtype):
        """Refused: the index counts elements of the tensor's own dtype."""
        self._refuse("become another dtype; call .view(dtype) first")

    reinterpret_cast = view

    def ap(
        self, pattern, offset=None, scalar_offset=None, vector_offset=None, indirect_dim=0,
        dtype=None,
    ):  # fmt: skip
        """Refused: a pattern over the storage would drop the run-time index."""
        self._refuse("be accessed with another pattern; call .ap on the tensor itself")

    def vector_select(self, dim, vector_offset):
        """Refused: there is an index already."""
        self._refuse("take a second run-time index")

    def indirect(self, index, num_elem=None):
        """Refused: there is an index already."""
        self._refuse("take a second run-time index")

    def _takes_part(self, dim):
        if self.kind == INDIRECT or (self.kind == VECTOR and dim == 0):
            return True
        return self.walked is not None and self.strides[dim] == self.walked and self.shape[dim] > 1

    def _not_first(self, dim, method):
        self._require_free(method)
        rank = self.ndim + (method == "expand_dim")
        if self.kind == VECTOR and self._dim(dim, rank) == 0:
            self._refuse(f"have {method} act on dimension 0")

    def _require_free(self, method):
        if self.kind == INDIRECT:
            self._refuse(f"have {method} act on it")

    def _refuse(self, what):
        raise NkiValidationError(
            "dynamic-view",
            f"{self.describe()} cannot {what}. A view has at most one run-time index, and what it "
            f"acts on stays as it is.",
        )


def access_pattern(tensor, view, scalar_offset, vector_offset, indirect_dim):
    """``tensor.ap`` with a run-time offset; ``view`` is the static pattern.

    The index is scaled by the elements to the right of ``indirect_dim`` in the shape of the tensor
    (nki-aps.rst) and by that dimension's stride (stub): they must be the same.
    """
    if scalar_offset is not None and vector_offset is not None:
        raise NkiValidationError(
            "ap-one-offset", "scalar_offset and vector_offset exclude each other; give one."
        )
    chip = is_on_chip(tensor.buffer)
    if type(indirect_dim) is not int or not 0 <= indirect_dim < tensor.ndim:
        raise NkiValidationError(
            "ap-indirect-dim",
            f"indirect_dim={indirect_dim!r}; it is a dimension of the tensor of shape "
            f"{list(tensor.shape)}.",
        )
    if chip and indirect_dim == 0:
        raise NkiValidationError(
            "ap-indirect-dim",
            "indirect_dim=0 of an on-chip tensor is the partition, which a run-time offset cannot "
            "move; pass indirect_dim=1 or more.",
        )
    scale, limit = tensor.strides[indirect_dim], tensor.shape[indirect_dim]
    right = math.prod(tensor.shape[indirect_dim + 1 :])
    if scale != right:
        raise NkiValidationError(
            "ap-indirect-base",
            f"dimension {indirect_dim} of the tensor has stride {scale}, and {right} elements to "
            f"its right; the documents scale the offset by either. Call ap on a tensor that is "
            f"dense from there on.",
        )
    if view.info.itemsize != tensor.info.itemsize:
        # The innermost dimension counts elements of the access; further out, the shape of the
        # tensor counts elements of another size, and no document says which the index means.
        if right != 1:
            raise NkiValidationError(
                "ap-indirect-dtype",
                f"dtype={view.dtype} with an offset of dimension {indirect_dim} of a "
                f"{tensor.dtype} tensor; call .view(dtype) first.",
            )
        limit = limit * tensor.info.itemsize // view.info.itemsize
    if scalar_offset is not None:
        _scalar_index(scalar_offset, "scalar_offset")
        return _dynamic(view, SCALAR, scalar_offset, scale, limit, walked=scale)
    if indirect_dim != 0:
        raise NkiValidationError(
            "ap-vector-offset", f"vector_offset with indirect_dim={indirect_dim}; only 0 works."
        )
    _require_hbm(tensor, "vector_offset")
    _vector_index(vector_offset, "vector_offset")
    if vector_offset.size < view.shape[0]:
        raise NkiValidationError(
            "ap-vector-offset",
            f"vector_offset {list(vector_offset.shape)} has {vector_offset.size} indices and the "
            f"pattern {view.shape[0]} rows; every row needs one.",
        )
    return _rows(view, vector_offset, scale, limit)


def selected(tensor, dim, index):
    """``tensor.select`` with a run-time index."""
    _scalar_index(index, "index")
    if is_on_chip(tensor.buffer) and dim == 0:
        raise NkiValidationError(
            "dynamic-select",
            "a run-time index cannot select a partition (dimension 0 of an on-chip tensor).",
        )
    scale = tensor.strides[dim]
    if scale < 1:
        raise NkiValidationError(
            "dynamic-select",
            f"dimension {dim} has stride {scale}; a run-time index selects along a dimension that "
            f"steps forward in memory.",
        )
    return _dynamic(tensor.select(dim, 0), SCALAR, index, scale, tensor.shape[dim], walked=None)


def vector_selected(tensor, dim, vector_offset):
    """``tensor.vector_select``."""
    if dim != 0:
        raise NkiValidationError("vector-select", f"vector_select of dimension {dim}; only 0.")
    _require_hbm(tensor, "vector_select")
    _vector_index(vector_offset, "vector_offset")
    if vector_offset.shape[1] != 1:
        raise NkiValidationError(
            "vector-select",
            f"vector_offset has shape {list(vector_offset.shape)}; one index a partition, (P, 1).",
        )
    scale, limit = tensor.strides[0], tensor.shape[0]
    # nki-aps.rst: the stride of the indexed dimension spans everything to its right.
    if scale < 1 or any(abs(stride) > scale for stride in tensor.strides[1:]):
        raise NkiValidationError(
            "vector-select",
            f"dimension 0 has stride {scale} among {list(tensor.strides)}; the rows that are "
            f"selected must be the outermost dimension in memory.",
        )
    shape = (vector_offset.shape[0], *tensor.shape[1:])
    view = NkiTensor._view(tensor, tensor.offset, shape, tensor.strides, exact=False)
    return _rows(view, vector_offset, scale, limit)


def indirect(tensor, index, num_elem):
    """``tensor.indirect``: the columns of an on-chip tile that a tile of offsets lists."""
    from .session import current_session

    rules.from_generation(current_session("NkiTensor.indirect"), 4, ".indirect")
    if not is_on_chip(tensor.buffer) or tensor.ndim != 2 or not tensor.is_contiguous():
        raise NkiValidationError(
            "indirect-tensor",
            f"{tensor.describe()}, strides {list(tensor.strides)}: .indirect is for a tile of two "
            f"dimensions in SBUF or PSUM with a dense free dimension.",
        )
    plain = type(index) is NkiTensor and index.buffer is MemoryRegion.sbuf and index.ndim == 2
    if not plain or index.shape[0] != tensor.shape[0] or index.info.kind != "integer":
        raise NkiValidationError(
            "indirect-index",
            f"index is {_shown(index)}; it must be an integer tile (P, K) in SBUF with the "
            f"{tensor.shape[0]} partitions of the tensor.",
        )
    count = index.size if num_elem is None else num_elem
    if type(count) is not int or not 1 <= count <= index.size:
        raise NkiValidationError(
            "indirect-count", f"num_elem={num_elem!r}; it is 1 to index.size = {index.size}."
        )
    view = tensor._view(tensor.offset, (tensor.shape[0], count), tensor.strides, exact=False)
    return _dynamic(view, INDIRECT, index, 1, tensor.shape[1], walked=None)


def _rows(view, index, scale, limit):
    """A vector view: the stride of the leading pair is the base tensor's, whatever was given."""
    view.strides = (scale, *view.strides[1:])
    return _dynamic(view, VECTOR, index, scale, limit, walked=None)


def _dynamic(view, kind, index, scale, limit, walked):
    """The static ``view`` with a run-time index."""
    from .session import active_session

    dynamic = object.__new__(DynamicView)
    for name in NkiTensor.__slots__:
        setattr(dynamic, name, getattr(view, name))
    dynamic.kind, dynamic.index = kind, index
    dynamic.scale, dynamic.limit, dynamic.walked = scale, limit, walked
    session = active_session()
    if session is not None:
        session.runtime()  # from now on instructions look for such operands
    return dynamic


def _scalar_index(index, role):
    if isinstance(index, VirtualRegister):
        return
    plain = type(index) is NkiTensor and index.buffer is MemoryRegion.sbuf
    if not plain or index.shape != (1, 1) or index.dtype not in INDEX_DTYPES:
        raise NkiValidationError(
            "scalar-index",
            f"{role} is {_shown(index)}; it must be a register or a (1, 1) tile of int32 or uint32 "
            f"in SBUF.",
        )


def _vector_index(index, role):
    plain = type(index) is NkiTensor and index.buffer is MemoryRegion.sbuf and index.ndim == 2
    if not plain or index.dtype not in INDEX_DTYPES:
        raise NkiValidationError(
            "vector-index",
            f"{role} is {_shown(index)}; it must be a tile of int32 or uint32 with two dimensions "
            f"in SBUF.",
        )


def _require_hbm(tensor, what):
    if not is_hbm(tensor.buffer):
        raise NkiValidationError(
            "vector-buffer", f"{what} on {tensor.describe()}; the indexed tensor must be in HBM."
        )


def _shown(value):
    return value.describe() if hasattr(value, "describe") else repr(value)
