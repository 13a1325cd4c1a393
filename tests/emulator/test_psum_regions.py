"""Accumulation where PSUM regions overlap, differ in shape or hold elements of another size."""

from contextlib import nullcontext

import hypothesis
import hypothesis.strategies as st

from nki_emulator import NkiError

from .support import load, nisa, nl, np, pair, pytest, save, simulate, tile
from .test_psum_accumulation import PRODUCT, W, X, close, operands, psum


def test_half_of_a_tile_is_transposed_in_another_width():
    """Float32 sums on the left of a tile, transposed bfloat16 data on the right."""

    def kernel(x, w):
        stationary, moving = operands(x, w)
        acc = psum()
        halves = acc.view(nl.bfloat16)
        data = load(x[:, 0:32], nl.bfloat16)
        for _ in range(2):
            nisa.nc_matmul(acc[:, 0:48], stationary, moving[:, 0:48])
            nisa.nc_transpose(halves[:, 128:192], data)
        return save(acc[:, 0:48]), save(halves[:, 128:192])

    sums, turned = simulate(kernel)(X, W)
    close(sums, 2 * PRODUCT[:, 0:48])
    np.testing.assert_array_equal(turned, X[:, 0:32].T.astype(turned.dtype))


@pytest.mark.parametrize("target", ["trn2", "trn3"])
@pytest.mark.parametrize("accumulate", [None, True])
def test_a_sum_does_not_continue_on_elements_of_another_size(on_target, target, accumulate):
    on_target(target)

    def kernel(x, w, first, accumulate):
        stationary, moving = operands(x, w)
        acc = psum()
        nisa.nc_matmul(acc, stationary, moving)
        nisa.nc_transpose(
            acc.view(nl.bfloat16)[:, first : first + 64], load(x[:, 0:32], "bfloat16")
        )
        nisa.nc_matmul(acc[:, 0:48], stationary, moving[:, 0:48], accumulate=accumulate)  # rule
        return save(acc)

    pair("psum-view-dtype", kernel, (X, W, 128, accumulate), (X, W, 64, accumulate))
    pair("psum-view-dtype", kernel, (X, W, 96, accumulate), (X, W, 95, accumulate))
    simulate(kernel)(X, W, 64, False)


def test_writes_of_narrower_elements_are_followed():
    def kernel(x, w, dtype, first):
        stationary, moving = operands(x, w)
        acc = psum()
        nisa.nc_matmul(acc, stationary, moving)
        nisa.memset(dst=acc.view(dtype)[:, first : first + 1], value=0)
        nisa.nc_matmul(acc[:, 0:48], stationary, moving[:, 0:48])  # rule
        return save(acc)

    expected = PRODUCT.copy()
    expected[:, 0:48] *= 2
    got = simulate(kernel)(X, W, nl.int16, 96)
    close(got[:, 0:48], expected[:, 0:48])
    pair("psum-view-dtype", kernel, (X, W, nl.int16, 96), (X, W, nl.int16, 95))
    pair("psum-view-dtype", kernel, (X, W, nl.uint8, 192), (X, W, nl.uint8, 191))
    pair("psum-accumulate-on-other", kernel, (X, W, nl.int32, 48), (X, W, nl.int32, 47))


class Model:
    """What the documentation says about a PSUM tile of (2, 24) float32, a byte at a time."""

    def __init__(self, generation):
        self.generation = generation
        self.values = np.zeros(24, np.float32)
        self.writer = np.full(96, "nobody", dtype="U6")  # of each byte of a partition

    def other(self, first, count, itemsize):
        writer = self.writer[first * itemsize : (first + count) * itemsize]
        writer[np.isin(writer, ("matmul", "after"))] = "after"
        writer[np.isin(writer, ("nobody",))] = "other"
        self.values.view(np.uint8)[first * itemsize : (first + count) * itemsize] = 0

    def matmul(self, columns, accumulate, value):
        """The rule that is broken, or None after the write."""
        writers = self.writer.reshape(24, 4)[columns]
        mixed = (writers != writers[:, :1]).any()
        if accumulate is not False and mixed:
            return "psum-view-dtype"
        if accumulate is True:
            if (writers == "nobody").any():
                return "psum-accumulate-unwritten"
            if self.generation < 4 and (writers != "matmul").any():
                return "psum-accumulate-on-other"
        if accumulate is None and (writers == "after").any() and self.generation < 4:
            return "psum-accumulate-on-other"
        adds = accumulate is True or (writers[:, 0] == "matmul" if accumulate is None else False)
        self.values[columns] = np.where(adds, self.values[columns], 0) + value
        self.writer.reshape(24, 4)[columns] = "matmul"
        return None


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("matmul"), st.integers(0, 12), st.integers(1, 12), st.sampled_from([1, 2]),
            st.sampled_from([None, None, None, True, False]),
        ),
        st.tuples(
            st.sampled_from(["int8", "int16", "int32", "float32"]), st.integers(0, 20),
            st.integers(1, 4), st.just(1), st.none(),
        ),
    ),
    min_size=1, max_size=8,
)  # fmt: skip


@hypothesis.given(STEPS, st.sampled_from(["trn2", "trn3"]))
@hypothesis.settings(
    deadline=None, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture]
)
def test_any_sequence_of_overlapping_writes(on_target, steps, target):
    """Matmuls of any shape and stride and memsets of any width, against a model of the bytes."""
    on_target(target)
    model = Model(4 if target == "trn3" else 3)
    written = np.zeros(24, bool)

    def kernel():
        acc = psum((2, 24))
        ones = tile((1, 2), value=1.0)
        for number, (kind, first, count, step, accumulate) in enumerate(steps):
            if kind == "matmul":
                columns = slice(first, min(24, first + step * count), step)
                moving = tile((1, len(range(24)[columns])), value=float(2**number))
                broken = model.matmul(columns, accumulate, float(2**number))
                with pytest.raises(NkiError) if broken else nullcontext() as caught:
                    nisa.nc_matmul(acc[:, columns], ones, moving, accumulate=accumulate)
                if broken:
                    assert caught.value.rule == broken
                else:
                    written[columns] = True
            else:
                view = acc.view(kind)
                model.other(first, count, view.info.nbytes)
                nisa.memset(dst=view[:, first : first + count], value=0)
        return tuple(save(acc[:, column : column + 1]) for column in np.flatnonzero(written))

    results = simulate(kernel)()
    assert len(results) == written.sum()
    for column, got in zip(np.flatnonzero(written), results):
        np.testing.assert_array_equal(got, np.full((2, 1), model.values[column]))
