"""get-started/nki-language-guide.rst: what its examples say, with kernels of our own."""

from dataclasses import dataclass
from enum import Enum

from .support import (
    load,
    nisa,
    nki,
    nl,
    np,
    pair,
    pytest,
    refused,
    same_bits,
    save,
    simulate,
    values,
)


def attributes(tensor):
    return tensor.shape, tensor.strides, tensor.offset


def test_an_elementwise_kernel_with_checks_and_a_print(capsys):
    """First example: checks and print run while the kernel is built; dst comes first."""

    @nki.jit
    def product(left, right):
        assert left.shape == right.shape and left.dtype == right.dtype
        assert left.shape[0] <= nl.tile_size.pmax
        print(f"{left.dtype} {left.shape}")
        a, b = load(left), load(right)
        c = nl.ndarray(shape=left.shape, dtype=left.dtype, buffer=nl.sbuf)
        nisa.tensor_tensor(c, a, b, nl.multiply)
        return save(c)

    x, y = values((128, 16), "float16"), values((128, 16), "float16", seed=1)
    expected = (x.astype(np.float32) * y).astype(np.float16)
    same_bits(product(x, y), expected)
    assert capsys.readouterr().out == "float16 (128, 16)\n"
    with pytest.raises(AssertionError):
        product(x, y.astype(np.float32))


def test_loops_and_conditions_are_resolved_when_the_kernel_is_built():
    """Section "Compilation Model": an unrolled loop, every other iteration longer."""

    @nki.jit
    def alternating(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        for i in range(x.shape[0] // 4):
            rows = load(x[i * 4 : (i + 1) * 4, :])
            if i % 2 == 0:
                nisa.tensor_scalar(dst=rows, data=rows, op0=nl.add, operand0=1.0)
            nisa.dma_copy(dst=out[i * 4 : (i + 1) * 4, :], src=rows)
        return out

    x = values((16, 8))
    odd = (np.arange(16) // 4 % 2).astype(bool)
    same_bits(alternating(x), np.where(odd[:, None], x, x + 1))


def test_containers():
    """Section "NKI Values": lists, dictionaries with string keys, tuples."""

    def kernel(x):
        items = [x, 2]
        items.append(0.5)
        items.extend(("a", "b"))
        items.remove(2)
        items.reverse()
        assert items.index("a") == 1 and len(items) == 4
        table = {"scale": 3.0}
        table["shift"] = 1.0
        assert list(table.keys()) == ["scale", "shift"]
        assert table.setdefault("scale", 0.0) == 3.0 and table.pop("shift") == 1.0
        t = load(items[-1])
        for key, value in table.items():
            assert key == "scale"
            nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=value)
        return save(t)

    x = values((4, 4))
    same_bits(simulate(kernel)(x), 3 * x)


def test_the_anatomy_of_a_tensor():
    """Section "Anatomy of a tensor": shape, strides, offset, dtype, buffer, ndim, size."""

    def kernel():
        t = nl.ndarray((32, 12), dtype=nl.bfloat16, buffer=nl.sbuf)
        assert attributes(t) == ((32, 12), (12, 1), 0)
        assert (t.dtype, t.buffer, t.ndim, t.size) == (nl.bfloat16, nl.sbuf, 2, 384)
        named = nl.ndarray((2, 2), nl.float16, nl.sbuf, name="weights")
        assert named.name == "weights"

    simulate(kernel)()


def test_views_share_storage():
    """Section "Views share storage": what is written through one view is read through another."""

    def kernel():
        t = nl.ndarray((8, 12), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=t.reshape((8, 3, 4)), value=1.0)
        nisa.memset(dst=t[:, 4:8], value=2.0)
        return save(t.reshape((8, 3, 4))[:, 1]), save(t)

    part, whole = simulate(kernel)()
    same_bits(part, np.full((8, 4), 2, np.float32))
    same_bits(whole, np.repeat(np.array([[1, 2, 1]], np.float32), 4, axis=1).repeat(8, axis=0))


def test_layout_queries():
    """Section "Querying layout": contiguous, indirect, pattern."""

    def kernel():
        t = nl.ndarray((16, 4, 6), dtype=nl.float32, buffer=nl.sbuf)
        assert t.is_contiguous() and not t.permute((0, 2, 1)).is_contiguous()
        assert t.get_pattern() == [[24, 16], [6, 4], [1, 6]]
        index = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
        assert t.select(1, index).is_indirect() and not t.select(1, 2).is_indirect()
        h = nl.ndarray((16, 8), dtype=nl.float32, buffer=nl.shared_hbm)
        rows = nl.ndarray((4, 1), dtype=nl.int32, buffer=nl.sbuf)
        assert h.vector_select(0, rows).is_indirect()
        assert h.ap([[8, 4], [1, 8]], vector_offset=rows).is_indirect()
        assert h.ap([[8, 4], [1, 8]], scalar_offset=index).is_indirect()

    simulate(kernel)()


def test_an_indexed_dimension_of_an_indirect_view_stays_as_it_is():
    """Section "Querying layout": the indirected dimension cannot be sliced or selected again."""

    def kernel(dim):
        h = nl.ndarray((16, 8, 4), dtype=nl.float32, buffer=nl.shared_hbm)
        rows = nl.ndarray((4, 1), dtype=nl.int32, buffer=nl.sbuf)
        h.vector_select(0, rows).slice(dim, 0, 2)  # rule

    pair("dynamic-view", kernel, 1, 0)


def test_the_partition_dimension_is_special():
    """Section "View primitives": an integer keeps the partition on the chip and drops in HBM."""

    def kernel():
        t = nl.ndarray((16, 6, 4), dtype=nl.float32, buffer=nl.sbuf)
        assert t[0, :, :].shape == (1, 6, 4) and t[:, :, 0].shape == (16, 6)
        h = nl.ndarray((3, 16, 4), dtype=nl.float32, buffer=nl.shared_hbm)
        assert h[0, :, :].shape == (16, 4)

    simulate(kernel)()


def test_views_compose():
    """Section "Composition": slice, permute and select in a row."""

    def kernel(x):
        t = load(x)
        u = t[0:3, :, :].permute((0, 2, 1))[:, 1, :]
        assert u.shape == (3, 4)
        return save(u)

    x = values((6, 4, 5))
    same_bits(simulate(kernel)(x), np.ascontiguousarray(x[:3, :, 1]))


def test_access_patterns():
    """Section "Low-level raw access pattern: ap": every other element; a changed pattern."""

    def kernel(x):
        t = load(x)
        every_other = t.ap(pattern=[(10, 8), (2, 5)])
        assert every_other.shape == (8, 5)
        pattern = t.get_pattern()
        pattern[0][1] = 4
        return save(every_other), save(t.ap(pattern=pattern))

    x = values((8, 10))
    every_other, first = simulate(kernel)(x)
    same_bits(every_other, np.ascontiguousarray(x[:, ::2]))
    same_bits(first, x[:4])


def test_a_pattern_ignores_the_view_that_it_is_called_on():
    """The warning in "Low-level raw access pattern: ap": patterns do not compose."""

    def kernel(x):
        t = load(x)
        pattern = [[10, 8], [1, 3]]
        inner = t.slice(1, 0, 10, 2)
        assert attributes(inner.ap(pattern=pattern)) == attributes(t.ap(pattern=pattern))

    simulate(kernel)(values((8, 10)))


def test_memory_is_not_initialised():
    """Section "Creating Tensors": contents are undefined until they are written."""

    def kernel(write):
        t = nl.ndarray((4, 4), dtype=nl.float16, buffer=nl.sbuf)
        if write:
            nisa.memset(dst=t, value=0.0)
        nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=1.0)  # rule

    pair("uninitialized-read", kernel, True, False)


def test_a_reshape_keeps_the_number_of_elements():
    """Section "Creating Tensors", reshape."""

    def kernel(shape):
        t = nl.ndarray((16, 16), nl.float16, nl.sbuf)
        assert t.reshape(shape).storage is t.storage  # rule

    pair("reshape", kernel, ((16, 2, 8),), ((16, 2, 9),))


INDEXED = [
    (lambda t: t[0, 0, 3], (1, 1)),
    (lambda t: t[:, 0], (8, 8)),
    (lambda t: t[:, 0, 3], (8, 1)),
    (lambda t: t[0:8, 0, 0:8], (8, 8)),
    (lambda t: t[:, 0, :], (8, 8)),
    (lambda t: t[:, :, ::2], (8, 8, 4)),
    (lambda t: t[...], (8, 8, 8)),
    (lambda t: t[0, ..., :], (1, 8, 8)),
    (lambda t: t[0:1, ...][:, 0:4, :], (1, 4, 8)),
]


@pytest.mark.parametrize("index, shape", INDEXED)
def test_indexing(index, shape):
    """Section "Tensor Indexing": integers, slices with steps, ellipses, chains."""

    def kernel(x):
        view = index(load(x))
        assert view.shape == shape
        assert [count for _, count in view.get_pattern()] == list(shape)
        return save(view)

    x = values((8, 8, 8))
    same_bits(simulate(kernel)(x), np.ascontiguousarray(index(x)).reshape(shape))


def test_a_static_loop_over_instructions():
    """Section "Control Flow": two instructions in turn, lists, a while over an integer."""

    def kernel(x):
        inputs = [load(x) for _ in range(3)]
        outputs = [nl.ndarray((4, 4), dtype=nl.float32) for _ in inputs]
        assert len(inputs) == len(outputs)
        for i in range(len(inputs)):
            if i % 2 == 0:
                nisa.nc_transpose(dst=outputs[i], data=inputs[i], engine=nisa.engine.vector)
            else:
                nisa.reciprocal(dst=outputs[i], data=inputs[i])
        count, seen = 0, []
        while count < 3:
            seen.append(count)
            count += 1
        for expected, found in zip((0, 1, 2), seen):
            assert expected == found
        return tuple(save(t) for t in outputs)

    x = values((4, 4)) + 3
    first, second, third = simulate(kernel)(x)
    same_bits(first, np.ascontiguousarray(x.T))
    np.testing.assert_array_equal(second, np.float32(1) / x)
    same_bits(third, first)


class Direction(Enum):
    UP = 1
    DOWN = 2


@dataclass
class Step(nl.NKIObject):
    size: float
    twice: bool = False

    def __post_init__(self):
        self.seen = 0

    def double(self):
        self.twice = not self.twice
        return self


class Plain(nl.NKIObject):
    size: float = 1.0

    def __init__(self, size):
        self.size = size


@pytest.mark.parametrize("make", [Step, Plain])
@pytest.mark.parametrize("direction, sign", [(Direction.UP, 1), (Direction.DOWN, -1)])
def test_classes_and_enumerations_as_arguments(make, direction, sign):
    """Section "Class Support", "Enumerations": fields are kept, members compare."""

    @nki.jit
    def kernel(x, step, direction):
        local = Step(2.0).double()
        assert (local.size, local.twice, local.seen) == (2.0, True, 0)
        t = load(x)
        amount = step.size if direction == Direction.UP else -step.size
        assert (direction != Direction.DOWN) == (amount > 0)
        nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=amount)
        return save(t)

    x = values((4, 4))
    same_bits(kernel(x, make(3.0), direction), x + np.float32(3 * sign))


def tiled(source, target, function):
    for i in range(source.shape[0] // 8):
        rows = load(source[i * 8 : (i + 1) * 8])
        result = nl.ndarray(rows.shape, dtype=rows.dtype, buffer=nl.sbuf)
        function(dst=result, src=rows)
        nisa.dma_copy(dst=target[i * 8 : (i + 1) * 8], src=result)


def rectified(dst, src):
    nisa.activation(dst=dst, data=src, op=nl.relu)


def halved(dst, src):
    nisa.tensor_scalar(dst=dst, data=src, op0=nl.multiply, operand0=0.5)


def chosen(name):
    return {"relu": rectified, "half": halved}[name]


@pytest.mark.parametrize("name", ["relu", "half"])
def test_functions_are_values(name):
    """Section "Composable Kernels": functions as argument and result; output as argument."""

    @nki.jit
    def kernel(x, y):
        tiled(x, y, chosen(name))

    x, y = values((16, 4)), np.zeros((16, 4), np.float32)
    assert kernel(x, y) is None
    same_bits(y, np.maximum(x, 0) if name == "relu" else x / 2)


def test_element_values_are_not_known_when_a_kernel_is_built():
    """The note in "Tensor Values": no expression of Python touches elements."""

    def kernel(x):
        t = load(x)
        return t + 1.0  # rule

    refused("tensor-arithmetic", kernel, values((2, 2)))
    same_bits(simulate(lambda x: save(nl.add(load(x), 1.0)))(values((2, 2))), values((2, 2)) + 1)
