"""Chains of views address the same elements as NumPy does on the storage (hypothesis)."""

import hypothesis
import hypothesis.strategies as st

from nki_emulator import NkiValidationError
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

    @property
    def first_free(self):
        return 1 if self.chip else 0

    def step(self):
        name = self.draw(
            st.sampled_from(
                ["index", "slice", "permute", "reshape", "reshape_dim", "flatten", "expand",
                 "squeeze", "broadcast", "select", "rearrange"]
            )
        )  # fmt: skip
        getattr(self, name)()

    def index(self):
        keys, model_keys = [], []
        for axis, size in enumerate(self.tensor.shape):
            kind = self.draw(st.sampled_from(["all", "slice", "ds", "int", "negative"]))
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
        dim = self.draw(st.integers(0, self.tensor.ndim - 1))
        size = self.tensor.shape[dim]
        low = self.draw(st.integers(0, size - 1))
        high = self.draw(st.integers(low + 1, size))
        step = 1 if self.chip and dim == 0 else self.draw(st.integers(1, 3))
        self.tensor = self.tensor.slice(dim, low, high, step)
        key = [slice(None)] * self.model.ndim
        key[dim] = slice(low, high, step)
        self.model = self.model[tuple(key)]

    def select(self):
        dim = self.draw(st.integers(0, self.tensor.ndim - 1))
        index = self.draw(st.integers(0, self.tensor.shape[dim] - 1))
        if self.chip and (dim == 0 or self.tensor.ndim == 2):
            return
        if self.tensor.ndim == 1:
            return
        self.tensor = self.tensor.select(dim, index)
        self.model = self.model[(slice(None),) * dim + (index,)]

    def permute(self):
        free = list(range(self.first_free, self.tensor.ndim))
        dims = ([0] if self.chip else []) + self.draw(st.permutations(free))
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
        for part in [self.model[p] for p in range(len(self.model))] if self.chip else [self.model]:
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
    places = offset + sum(
        stride * index for (stride, _), index in zip(pattern, np.indices(counts))
    )
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
