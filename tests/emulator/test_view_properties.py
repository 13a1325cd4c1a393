"""Chains of views address the same elements as NumPy does on the storage (hypothesis)."""

import hypothesis
import hypothesis.strategies as st

from nki_emulator import NkiValidationError
from nki_emulator.addresses import static_view
from nki_emulator.engines.rows import Rows
from nki_emulator.registers import VirtualRegister
from nki_emulator.session import Session

from .support import math, nl, np, pytest

CHIP, HBM = nl.sbuf, nl.shared_hbm


def fresh(shape, buffer):
    """A tensor holding 0, 1, 2, ... and the same numbers as a NumPy array."""
    tensor = Session().allocate(shape, nl.int32, buffer)
    numbers = np.arange(math.prod(shape), dtype=np.int32).reshape(shape)
    tensor.array[...] = numbers
    return tensor, numbers


@st.composite
def shapes(draw):
    return tuple(draw(st.lists(st.integers(1, 6), min_size=2, max_size=4)))


class Chain:
    """Draws view operations that the rules allow and applies them to both sides."""

    def __init__(self, draw, tensor, model, chip):
        self.draw, self.tensor, self.model, self.chip = draw, tensor, model, chip

    # Dimensions that no step touches: the rows of a view with an index for each row.
    untouched = 0

    @property
    def first_free(self):
        return max(self.untouched, 1 if self.chip else 0)

    steps = (
        "index", "slice", "permute", "reshape", "reshape_dim", "flatten", "expand", "squeeze",
        "broadcast", "select", "rearrange", "pattern",
    )  # fmt: skip

    def step(self):
        getattr(self, self.draw(st.sampled_from(self.steps)))()

    def index(self):
        keys, model_keys = [], []
        for axis, size in enumerate(self.tensor.shape):
            kind = self.draw(st.sampled_from(["all", "slice", "ds", "int", "negative"]))
            if axis < self.untouched:
                kind = "all"
            low = self.draw(st.integers(0, size - 1))
            high = self.draw(st.integers(low + 1, size))
            step = 1 if self.chip and axis == 0 else self.draw(st.integers(1, 3))
            if kind == "all":
                keys.append(slice(None))
                model_keys.append(slice(None))
            elif kind == "slice":
                keys.append(slice(low, high, step))
                model_keys.append(slice(low, high, step))
            elif kind == "ds":
                keys.append(nl.ds(low, high - low))
                model_keys.append(slice(low, high))
            else:
                keys.append(low if kind == "int" else low - size)
                keep = self.chip and axis == 0
                model_keys.append(slice(low, low + 1) if keep else low)
        self.tensor = self.tensor[tuple(keys)]
        model = self.model[tuple(model_keys)]
        while model.ndim < (2 if self.chip else 1):
            model = model[..., None]
        self.model = model

    def slice(self):
        if self.tensor.ndim == self.untouched:
            return
        dim = self.draw(st.integers(self.untouched, self.tensor.ndim - 1))
        size = self.tensor.shape[dim]
        low = self.draw(st.integers(0, size - 1))
        high = self.draw(st.integers(low + 1, size))
        step = 1 if self.chip and dim == 0 else self.draw(st.integers(1, 3))
        self.tensor = self.tensor.slice(dim, low, high, step)
        key = [slice(None)] * self.model.ndim
        key[dim] = slice(low, high, step)
        self.model = self.model[tuple(key)]

    def select(self):
        if self.tensor.ndim == self.untouched:
            return
        dim = self.draw(st.integers(self.untouched, self.tensor.ndim - 1))
        index = self.draw(st.integers(0, self.tensor.shape[dim] - 1))
        if self.chip and (dim == 0 or self.tensor.ndim == 2):
            return
        if self.tensor.ndim == 1:
            return
        self.tensor = self.tensor.select(dim, index)
        self.model = self.model[(slice(None),) * dim + (index,)]

    def permute(self):
        free = list(range(self.first_free, self.tensor.ndim))
        dims = list(range(self.first_free)) + self.draw(st.permutations(free))
        self.tensor = self.tensor.permute(tuple(dims))
        self.model = self.model.transpose(dims)

    def _new_shape(self, count):
        sizes = []
        while count > 1 and len(sizes) < 3:
            divisors = [n for n in range(1, count + 1) if count % n == 0]
            sizes.append(self.draw(st.sampled_from(divisors)))
            count //= sizes[-1]
        return tuple(sizes) + ((count,) if count > 1 or not sizes else ())

    def reshape(self):
        keep = self.tensor.shape[: self.first_free]
        shape = keep + self._new_shape(math.prod(self.tensor.shape[self.first_free :]))
        self._reshaped(lambda: self.tensor.reshape(shape), shape)

    def reshape_dim(self):
        if self.tensor.ndim <= self.first_free:
            return
        dim = self.draw(st.integers(self.first_free, self.tensor.ndim - 1))
        sizes = self._new_shape(self.tensor.shape[dim])
        given = sizes
        if self.draw(st.booleans()):
            hidden = self.draw(st.integers(0, len(sizes) - 1))
            given = sizes[:hidden] + (-1,) + sizes[hidden + 1 :]
        shape = self.tensor.shape[:dim] + sizes + self.tensor.shape[dim + 1 :]
        self.tensor = self.tensor.reshape_dim(dim, given)
        self.model = self.model.reshape(shape)

    def flatten(self):
        if self.tensor.ndim <= self.first_free:
            return
        low = self.draw(st.integers(self.first_free, self.tensor.ndim - 1))
        high = self.draw(st.integers(low, self.tensor.ndim - 1))
        merged = math.prod(self.tensor.shape[low : high + 1])
        shape = self.tensor.shape[:low] + (merged,) + self.tensor.shape[high + 1 :]
        self._reshaped(lambda: self.tensor.flatten_dims(low, high), shape)

    def _reshaped(self, change, shape):
        """Accepted exactly where the layout allows it without a copy."""
        views = True
        parts = [self.model]
        for _ in range(self.first_free):
            parts = [part[p] for part in parts for p in range(len(part))]
        for part in parts:
            try:
                np.reshape(part, shape[self.first_free :], copy=False)
            except ValueError:
                views = False
        if views:
            self.tensor = change()
            self.model = self.model.reshape(shape)
            return
        with pytest.raises(NkiValidationError) as caught:
            change()
        assert caught.value.rule == "reshape-layout"

    def expand(self):
        dim = self.draw(st.integers(self.first_free, self.tensor.ndim))
        self.tensor = self.tensor.expand_dim(dim)
        self.model = np.expand_dims(self.model, dim)

    def squeeze(self):
        dims = [d for d in range(self.first_free, self.tensor.ndim) if self.tensor.shape[d] == 1]
        if not dims or self.tensor.ndim <= self.first_free + 1:
            return
        dim = self.draw(st.sampled_from(dims))
        self.tensor = self.tensor.squeeze_dim(dim)
        self.model = self.model.squeeze(dim)

    def broadcast(self):
        dims = [d for d in range(self.first_free, self.tensor.ndim) if self.tensor.shape[d] == 1]
        if not dims:
            return
        dim = self.draw(st.sampled_from(dims))
        size = self.draw(st.integers(1, 3))
        self.tensor = self.tensor.broadcast(dim, size)
        shape = self.model.shape[:dim] + (size,) + self.model.shape[dim + 1 :]
        self.model = np.broadcast_to(self.model, shape)

    def rearrange(self):
        names = [f"d{i}" for i in range(self.tensor.ndim)]
        free = names[self.first_free :]
        order = names[: self.first_free] + self.draw(st.permutations(free))
        self.tensor = self.tensor.rearrange(tuple(names), tuple(order))
        self.model = self.model.transpose([names.index(name) for name in order])

    def pattern(self):
        """An access pattern over the storage: the shape and strides before it do not matter."""
        view, storage = self.tensor, self.tensor.storage
        free = st.tuples(st.integers(-3, 8), st.integers(1, 4))
        pairs = self.draw(st.lists(free, min_size=1, max_size=3))
        low = high = view.offset % view.pitch if self.chip else view.offset
        low += sum(stride * (count - 1) for stride, count in pairs if stride < 0)
        high += sum(stride * (count - 1) for stride, count in pairs if stride > 0)
        limit = view.pitch if self.chip else storage.size
        if self.chip:
            first = view.offset // view.pitch
            pairs.insert(0, (view.pitch, self.draw(st.integers(1, storage.shape[0] - first))))
        if low < 0 or high >= limit:
            with pytest.raises(NkiValidationError) as caught:
                view.ap(pattern=pairs)
            assert caught.value.rule == "out-of-bounds"
            return
        self.tensor = view.ap(pattern=[list(pair) for pair in pairs])
        numbers = np.arange(storage.size, dtype=np.int32)
        shape = [count for _, count in pairs]
        self.model = np.lib.stride_tricks.as_strided(
            numbers[view.offset :], shape, [stride * 4 for stride, _ in pairs]
        )


@pytest.mark.parametrize("buffer", [CHIP, HBM], ids=["chip", "hbm"])
@hypothesis.settings(max_examples=150, deadline=None)
@hypothesis.given(data=st.data())
def test_chains_of_views(buffer, data):
    chip = buffer is CHIP
    tensor, model = fresh(data.draw(shapes()), buffer)
    chain = Chain(data.draw, tensor, model, chip)
    for _ in range(data.draw(st.integers(1, 5))):
        if chain.tensor.ndim > 7:
            break
        chain.step()
        assert chain.tensor.shape == chain.model.shape
        np.testing.assert_array_equal(chain.tensor.array, chain.model)
        addressed = chain.tensor.offset + sum(
            index * stride
            for index, stride in zip(np.indices(chain.tensor.shape), chain.tensor.strides)
        )
        np.testing.assert_array_equal(chain.model, addressed)


@hypothesis.settings(max_examples=100, deadline=None)
@hypothesis.given(data=st.data())
def test_access_patterns(data):
    """ap() addresses offset + sum(stride * index) of the storage, or is refused."""
    shape = data.draw(shapes())
    tensor, model = fresh(shape, HBM)
    flat = model.ravel()
    pattern = data.draw(
        st.lists(st.tuples(st.integers(-4, 12), st.integers(1, 4)), min_size=1, max_size=4)
    )
    offset = data.draw(st.integers(0, flat.size + 2))
    counts = [count for _, count in pattern]
    places = offset + sum(stride * index for (stride, _), index in zip(pattern, np.indices(counts)))
    if places.min() >= 0 and places.max() < flat.size:
        view = tensor.ap(pattern=[list(pair) for pair in pattern], offset=offset)
        np.testing.assert_array_equal(view.array, flat[places])
        assert view.get_pattern() == [list(pair) for pair in pattern]
    else:
        with pytest.raises(NkiValidationError) as caught:
            tensor.ap(pattern=pattern, offset=offset)
        assert caught.value.rule == "out-of-bounds"


@hypothesis.settings(max_examples=100, deadline=None)
@hypothesis.given(data=st.data())
def test_access_patterns_on_the_chip_stay_in_their_partition(data):
    partitions, width = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 12))
    tensor, model = fresh((partitions, width), CHIP)
    count = data.draw(st.integers(1, 6))
    pairs = data.draw(
        st.lists(st.tuples(st.integers(-3, 6), st.integers(1, 4)), min_size=1, max_size=3)
    )
    offset = data.draw(st.integers(0, partitions * width - 1))
    column = offset % width + sum(
        stride * index for (stride, _), index in zip(pairs, np.indices([n for _, n in pairs]))
    )
    inside = column.min() >= 0 and column.max() < width
    inside = inside and offset // width + count <= partitions
    pattern = [[width, count], *(list(pair) for pair in pairs)]
    if inside:
        view = tensor.ap(pattern=pattern, offset=offset)
        rows = np.arange(offset // width, offset // width + count)
        np.testing.assert_array_equal(view.array, model[rows][:, column])
    else:
        with pytest.raises(NkiValidationError) as caught:
            tensor.ap(pattern=pattern, offset=offset)
        assert caught.value.rule == "out-of-bounds"


@hypothesis.settings(max_examples=100, deadline=None)
@hypothesis.given(data=st.data())
def test_written_elements_follow_any_view(data):
    """Marking a view written marks exactly its elements, in every other view too."""
    shape = data.draw(shapes())
    tensor = Session().allocate(shape, nl.int32, HBM)
    written = np.zeros(shape, np.bool_)
    for _ in range(data.draw(st.integers(1, 4))):
        chain = Chain(data.draw, tensor, written, chip=False)
        chain.index()
        chain.permute()
        chain.tensor.storage.mark_written(chain.tensor)
        key = np.zeros(math.prod(shape), np.bool_)
        numbers = np.arange(key.size, dtype=np.int32).reshape(shape)
        tensor.array[...] = numbers
        key[chain.tensor.array.ravel()] = True
        written |= key.reshape(shape)
        np.testing.assert_array_equal(tensor.storage.is_written(tensor), written)
        assert tensor.storage.complete == bool(written.all())


@pytest.mark.parametrize("buffer", [CHIP, HBM], ids=["chip", "hbm"])
@hypothesis.settings(max_examples=150, deadline=None)
@hypothesis.given(data=st.data())
def test_views_as_another_dtype(buffer, data):
    """view(dtype) after any chain is NumPy's, where elements start on a whole element."""
    tensor, model = fresh(data.draw(shapes()), buffer)
    old = data.draw(st.sampled_from([nl.int32, nl.int16, nl.uint8]))
    tensor, model = tensor.view(old), model.view(old)
    starts = np.arange(model.size).reshape(model.shape) * model.itemsize
    chain = Chain(data.draw, tensor, starts, buffer is CHIP)
    chain.steps = ("index", "slice", "permute", "expand", "broadcast", "select", "reshape_dim")
    for _ in range(data.draw(st.integers(0, 3))):
        chain.step()
    new = data.draw(st.sampled_from([nl.int32, nl.int16, nl.int8]))
    before, size = model.itemsize, np.dtype(new).itemsize
    starts, last = chain.model, chain.tensor.shape[-1]
    dense = last == 1 or chain.tensor.strides[-1] == 1 or size == before
    whole = last * before % size == 0
    legal = dense and whole and (starts[..., :: max(1, size // before)] % size == 0).all()
    if not legal:
        with pytest.raises(NkiValidationError) as caught:
            chain.tensor.view(new)
        assert caught.value.rule == "view-dtype"
        return
    view = chain.tensor.view(new)
    steps = np.arange(0, before, size) if size < before else np.zeros(1, int)
    places = starts[..., :: max(1, size // before), None] + steps
    places = places.reshape(view.shape)
    held = model.reshape(-1).view(new)
    np.testing.assert_array_equal(view.array, held[places // size])


class RowChain(Chain):
    """Steps on a view with one run-time index for each row: dimension 0 stays."""

    untouched = 1
    steps = tuple(name for name in Chain.steps if name != "pattern")


class ScalarChain(Chain):
    """Steps on a view with one run-time index."""

    steps = RowChain.steps


def resolved(view):
    """What a view with a scalar index addresses now."""
    session = Session()
    session.runtime()
    return static_view(session, view, "x").array


@pytest.mark.parametrize("buffer", [CHIP, HBM], ids=["chip", "hbm"])
@pytest.mark.parametrize("register", [False, True])
@hypothesis.settings(max_examples=100, deadline=None)
@hypothesis.given(data=st.data())
def test_chains_around_a_run_time_select(buffer, register, data):
    chip = buffer is CHIP
    tensor, model = fresh(data.draw(shapes()), buffer)
    chain = Chain(data.draw, tensor, model, chip)
    for _ in range(data.draw(st.integers(0, 2))):
        chain.step()
    tensor, model = chain.tensor, chain.model
    dim = data.draw(st.integers(0, tensor.ndim - 1))
    number = data.draw(st.integers(-1, tensor.shape[dim]))
    index = VirtualRegister(number) if register else number_tile(number)
    if tensor.strides[dim] < 1 or (chip and dim == 0):
        with pytest.raises(NkiValidationError) as caught:
            tensor.select(dim, index)
        assert caught.value.rule == "dynamic-select"
        return
    view = tensor.select(dim, index)
    assert view.is_indirect()
    if not 0 <= number < tensor.shape[dim]:
        with pytest.raises(NkiValidationError) as caught:
            resolved(view)
        assert caught.value.rule == "dynamic-out-of-bounds"
        return
    model = model[(slice(None),) * dim + (number,)]
    while model.ndim < (2 if chip else 1):
        model = model[..., None]
    chain = ScalarChain(data.draw, view, model, chip)
    for _ in range(data.draw(st.integers(0, 3))):
        chain.step()
        assert chain.tensor.is_indirect() and chain.tensor.shape == chain.model.shape
    np.testing.assert_array_equal(resolved(chain.tensor), chain.model)


def number_tile(number):
    tile = Session().allocate((1, 1), nl.int32, CHIP)
    tile.array[...] = number
    tile.storage.mark_written(tile)
    return tile


@hypothesis.settings(max_examples=150, deadline=None)
@hypothesis.given(data=st.data())
def test_access_patterns_with_a_scalar_offset(data):
    shape = data.draw(shapes())
    tensor, model = fresh(shape, HBM)
    dim = data.draw(st.integers(0, len(shape) - 1))
    pairs = data.draw(
        st.lists(st.tuples(st.integers(0, 8), st.integers(1, 3)), min_size=1, max_size=3)
    )
    offset, number = data.draw(st.integers(0, 8)), data.draw(st.integers(-1, 6))
    places = offset + sum(
        stride * i for (stride, _), i in zip(pairs, np.indices([n for _, n in pairs]))
    )
    register = VirtualRegister(number)
    if places.max() >= model.size:
        with pytest.raises(NkiValidationError) as caught:
            tensor.ap(pattern=pairs, offset=offset, scalar_offset=register, indirect_dim=dim)
        assert caught.value.rule == "out-of-bounds"
        return
    view = tensor.ap(pattern=pairs, offset=offset, scalar_offset=register, indirect_dim=dim)
    places = places + number * math.prod(shape[dim + 1 :])
    if 0 <= number < shape[dim] and places.max() < model.size:
        np.testing.assert_array_equal(resolved(view), model.ravel()[places])
    else:
        with pytest.raises(NkiValidationError) as caught:
            resolved(view)
        assert caught.value.rule == "dynamic-out-of-bounds"


@hypothesis.settings(max_examples=150, deadline=None)
@hypothesis.given(data=st.data())
def test_chains_around_an_index_for_each_row(data):
    """Gathered and scattered elements are NumPy's, whatever views surround vector_select."""
    tensor, model = fresh(data.draw(shapes()), HBM)
    tensor.storage.mark_written(tensor)
    chain = Chain(data.draw, tensor, model, chip=False)
    for _ in range(data.draw(st.integers(0, 2))):
        chain.step()
    tensor, model = chain.tensor, chain.model
    limit = tensor.shape[0]
    numbers = np.array(data.draw(st.lists(st.integers(-1, limit), min_size=1, max_size=5)))
    index = Session().allocate((len(numbers), 1), nl.int32, CHIP)
    strides = tensor.strides
    if strides[0] < 1 or any(abs(stride) > strides[0] for stride in strides[1:]):
        with pytest.raises(NkiValidationError) as caught:
            tensor.vector_select(0, index)
        assert caught.value.rule == "vector-select"
        return
    view = tensor.vector_select(0, index)
    kept = (numbers >= 0) & (numbers < limit)
    clipped = np.clip(numbers, 0, limit - 1)
    # One model for each row, so that NumPy's views stay views.
    chain = RowChain(data.draw, view, model[clipped], chip=False)
    chain.steps = tuple(name for name in RowChain.steps if name not in ("reshape", "flatten"))
    for _ in range(data.draw(st.integers(0, 3))):
        chain.step()
        assert chain.tensor.is_indirect() and chain.tensor.shape == chain.model.shape
    rows = Rows(chain.tensor, "x", numbers, skip=True)
    np.testing.assert_array_equal(rows.kept, kept)
    np.testing.assert_array_equal(rows.read(), chain.model[kept])
    if not kept.all():
        with pytest.raises(NkiValidationError) as caught:
            Rows(chain.tensor, "x", numbers, skip=False)
        assert caught.value.rule == "dynamic-out-of-bounds"
    # The elements are numbered by place, so writing -1 - n to element n shows where it went.
    storage = chain.tensor.storage
    rows.write((-1 - chain.model[kept]).astype(np.int32))
    flat = storage.memory.view(np.int32)
    touched = np.zeros(flat.size, np.bool_)
    touched[chain.model[kept].ravel()] = True
    numbered = np.arange(flat.size)
    np.testing.assert_array_equal(flat, np.where(touched, -1 - numbered, numbered))
