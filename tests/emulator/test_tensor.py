"""Views: what each accepts, what it refuses, and what a tensor does not do in Python."""

from .support import nisa, nl, np, pair, pytest, refused, simulate, tile, values


def inside(function):
    """Run assertions inside a kernel."""
    simulate(function)()


def test_attributes_of_a_fresh_tile():
    def kernel():
        t = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf, name="acc")
        assert (t.shape, t.strides, t.offset) == ((128, 64), (64, 1), 0)
        assert (t.dtype, t.buffer, t.ndim, t.size) == (nl.float32, nl.sbuf, 2, 8192)
        assert t.name == "acc" and t.is_contiguous() and not t.is_indirect()
        assert t.get_pattern() == [[64, 128], [1, 64]]

    inside(kernel)


def test_on_chip_indexing_keeps_two_dimensions_and_the_partition():
    def kernel():
        t = nl.ndarray((64, 64, 64), dtype=nl.float32, buffer=nl.sbuf)
        assert t[0, 0, 10].shape == (1, 1)
        assert t[:, 0].shape == (64, 64)
        assert t[:, 0, 10].shape == (64, 1)
        assert t[0, :, :].shape == (1, 64, 64)
        assert t[0, ..., :].shape == (1, 64, 64)
        assert t[...].shape == (64, 64, 64)
        assert t[:, :, ::2].shape == (64, 64, 32)
        assert t[3].offset == 3 * 64 * 64
        assert t[-1, -2, -3].offset == 63 * 4096 + 62 * 64 + 61
        assert t[nl.ds(8, 4), nl.ds(1, 2)].shape == (4, 2, 64)
        assert t.select(0, 5).shape == (1, 64, 64)

    inside(kernel)


def test_hbm_indexing_drops_dimensions_down_to_one():
    def kernel():
        t = nl.ndarray((4, 128, 32), dtype=nl.float32, buffer=nl.shared_hbm)
        assert t[0].shape == (128, 32)
        assert t[0, :, 3].shape == (128,)
        assert t[1, 2, 3].shape == (1,) and t[1, 2, 3].offset == 4096 + 67
        assert t[::2, 5].shape == (2, 32)

    inside(kernel)


def test_view_examples():
    def kernel():
        t = nl.ndarray((128, 4, 16), dtype=nl.float32, buffer=nl.sbuf)
        assert t[0:64, :, :].permute((0, 2, 1))[:, 0, :].shape == (64, 4)
        assert t.slice(2, 8, 16, 2).get_pattern() == [[64, 128], [16, 4], [2, 4]]
        assert t.flatten_dims(1, 2).shape == (128, 64)
        assert t.reshape((128, 2, 32)).strides == (64, 32, 1)
        assert t.reshape((128, -1)).shape == (128, 64)
        assert t.expand_dim(1).broadcast(1, 3).shape == (128, 3, 4, 16)
        assert not t.permute((0, 2, 1)).is_contiguous()
        wide = nl.ndarray((128, 24), dtype=nl.float32, buffer=nl.sbuf)
        assert wide.reshape_dim(1, (4, -1)).shape == (128, 4, 6)
        assert wide.rearrange(("b", ("h", "w")), ("b", "w", "h"), {"h": 4}).shape == (128, 6, 4)
        assert wide.rearrange(("b", ("h", "w")), ("b", ("w", "h")), {"w": 1}).shape == (128, 24)

    inside(kernel)


def test_contiguity_on_the_chip_ignores_the_partition():
    def kernel():
        t = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
        assert t[:, 0:64].is_contiguous()
        assert not t[:, 0:64:2].is_contiguous()
        h = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.shared_hbm)
        assert not h[:, 0:64].is_contiguous() and h[0:64].is_contiguous()

    inside(kernel)


def test_view_as_another_dtype_shares_bits():
    def kernel(out):
        t = tile((4, 8), nl.float32, value=1.0)
        assert t.view(nl.uint8).shape == (4, 32)
        assert t.view(nl.bfloat16)[:, 2:].view(nl.float32).offset == 1
        assert t.reinterpret_cast(nl.int32).shape == (4, 8)
        nisa.dma_copy(dst=out, src=t.view(nl.int32))

    out = np.zeros((4, 8), np.int32)
    simulate(kernel)(out)
    assert (out == 0x3F800000).all()


def test_access_pattern_with_dtype():
    def kernel(out):
        t = tile((4, 8), nl.int32, value=0x3F803F80)
        halves = t.ap(pattern=[[16, 4], [1, 16]], offset=0, dtype=nl.bfloat16)
        assert halves.shape == (4, 16)
        nisa.dma_copy(dst=out, src=halves)

    out = np.zeros((4, 16), np.float32)
    simulate(kernel)(out)
    assert (out == 1).all()


def test_access_pattern_ignores_the_shape_of_an_inner_pattern():
    def kernel():
        t = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
        inner = t.ap(pattern=[[256, 128], [2, 128]])
        assert inner.ap(pattern=[[256, 128], [1, 64]]).strides == (256, 1)
        assert t[:, 8:].ap(pattern=[[256, 128], [1, 16]]).offset == 8

    inside(kernel)


def test_views_share_storage():
    def kernel(out):
        t = tile((8, 4, 4), value=0.0)
        nisa.memset(dst=t.permute((0, 2, 1))[:, 1], value=2.0)
        nisa.dma_copy(dst=out, src=t)

    out = np.zeros((8, 4, 4), np.float32)
    simulate(kernel)(out)
    expected = np.zeros((8, 4, 4))
    expected[:, :, 1] = 2
    np.testing.assert_array_equal(out, expected)


def one(shape, buffer, rule, good, bad):
    """A pair whose kernel applies a function to a fresh tensor."""

    def kernel(change):
        t = nl.ndarray(shape, dtype=nl.float32, buffer=buffer)
        change(t)  # rule

    return pair(rule, kernel, good, bad, line=bad)


CHIP, HBM = nl.sbuf, nl.shared_hbm
CASES = [
    ("out-of-bounds", (8, 8), CHIP, lambda t: t[:, 7], lambda t: t[:, 8]),
    ("out-of-bounds", (8, 8), CHIP, lambda t: t[:, -8], lambda t: t[:, -9]),
    ("out-of-bounds", (8, 8), CHIP, lambda t: t[:, 0:8], lambda t: t[:, 0:9]),
    ("out-of-bounds", (8, 8), HBM, lambda t: t[2:3], lambda t: t[3:3]),
    ("out-of-bounds", (8, 8), HBM, lambda t: t[-8:], lambda t: t[-9:]),
    ("out-of-bounds", (8, 8), HBM, lambda t: t[nl.ds(6, 2)], lambda t: t[nl.ds(7, 2)]),
    ("out-of-bounds", (8, 8), HBM, lambda t: t.slice(0, 0, 8), lambda t: t.slice(0, -8, 8)),
    ("out-of-bounds", (8, 8), HBM, lambda t: t.select(0, 7), lambda t: t.select(0, -1)),
    ("out-of-bounds", (8, 8), CHIP, lambda t: t.ap([[8, 8], [1, 8]]),
     lambda t: t.ap([[8, 8], [1, 9]])),
    ("out-of-bounds", (8, 8), CHIP, lambda t: t.ap([[8, 7], [1, 8]], offset=8),
     lambda t: t.ap([[8, 8], [1, 8]], offset=8)),
    ("slice-step", (8, 8), HBM, lambda t: t[::1], lambda t: t[::-1]),
    ("partition-step", (8, 8), CHIP, lambda t: t[:, ::2], lambda t: t[::2]),
    ("index", (8, 8), CHIP, lambda t: t[:, 1], lambda t: t[:, 1.0]),
    ("index", (8, 8), CHIP, lambda t: t[..., 1], lambda t: t[..., 1, ...]),
    ("index", (8, 8), CHIP, lambda t: t[1, 1], lambda t: t[1, 1, 1]),
    ("index", (8, 8), CHIP, lambda t: t[:, 0:2], lambda t: t[:, 0:2.5]),
    ("partition-dim", (8, 4, 2), CHIP, lambda t: t.permute((0, 2, 1)),
     lambda t: t.permute((1, 0, 2))),
    ("partition-dim", (1, 8), CHIP, lambda t: t[:, 0:1].broadcast(1, 4),
     lambda t: t.broadcast(0, 4)),
    ("partition-dim", (8, 4), CHIP, lambda t: t.expand_dim(1), lambda t: t.expand_dim(0)),
    ("partition-dim", (1, 4, 4), CHIP, lambda t: t.expand_dim(1).squeeze_dim(1),
     lambda t: t.squeeze_dim(0)),
    ("partition-dim", (8, 4), CHIP, lambda t: t.reshape_dim(0, (8,)),
     lambda t: t.reshape_dim(0, (4, 2))),
    ("partition-dim", (8, 4, 2), CHIP, lambda t: t.flatten_dims(1, 2),
     lambda t: t.flatten_dims(0, 1)),
    ("partition-dim", (8, 4), CHIP, lambda t: t.reshape((8, 2, 2)), lambda t: t.reshape((4, 8))),
    ("permute", (8, 4), HBM, lambda t: t.permute((1, 0)), lambda t: t.permute((1, 1))),
    ("broadcast", (8, 1), HBM, lambda t: t.broadcast(1, 3), lambda t: t.broadcast(0, 3)),
    ("broadcast", (8, 1), HBM, lambda t: t.broadcast(1, 1), lambda t: t.broadcast(1, 0)),
    ("squeeze", (8, 1, 2), HBM, lambda t: t.squeeze_dim(1), lambda t: t.squeeze_dim(2)),
    ("squeeze", (8, 1, 1), CHIP, lambda t: t.squeeze_dim(1),
     lambda t: t.squeeze_dim(1).squeeze_dim(1)),
    ("reshape", (8, 4), HBM, lambda t: t.reshape((4, 8)), lambda t: t.reshape((4, 7))),
    ("reshape", (8, 4), HBM, lambda t: t.reshape_dim(1, (2, -1)),
     lambda t: t.reshape_dim(1, (3, -1))),
    ("reshape", (8, 4), HBM, lambda t: t.reshape((-1,)), lambda t: t.reshape((-1, -1))),
    ("reshape-layout", (8, 4), HBM, lambda t: t[0:4].reshape((16,)),
     lambda t: t[:, 0:2].reshape((16,))),
    ("reshape-layout", (8, 4, 4), CHIP, lambda t: t[:, 0:2].flatten_dims(1, 2),
     lambda t: t[:, :, 0:2].flatten_dims(1, 2)),
    ("flatten", (8, 4, 4), HBM, lambda t: t.flatten_dims(0, 1), lambda t: t.flatten_dims(1, 0)),
    ("dim", (8, 4), HBM, lambda t: t.slice(-1, 0, 1), lambda t: t.slice(2, 0, 1)),
    ("rearrange", (8, 4), HBM, lambda t: t.rearrange(("a", "b"), ("b", "a")),
     lambda t: t.rearrange(("a", "b"), ("b", "c"))),
    ("rearrange", (8, 4), HBM, lambda t: t.rearrange((("a", "b"), "c"), ("c", "b", "a"), {"a": 2}),
     lambda t: t.rearrange((("a", "b"), "c"), ("c", "b", "a"))),
    ("rearrange", (8, 4), HBM, lambda t: t.rearrange((("a", "b"), "c"), ("c", "b", "a"), {"a": 4}),
     lambda t: t.rearrange((("a", "b"), "c"), ("c", "b", "a"), {"a": 3})),
    ("rearrange", (8, 4), HBM, lambda t: t.rearrange(("a", "b"), ("b", "a"), {"a": 8}),
     lambda t: t.rearrange(("a", "b"), ("b", "a"), {"z": 8})),
    ("rearrange", (8, 4), HBM, lambda t: t.rearrange(("a", "b"), ("b", "a")),
     lambda t: t.rearrange(("a",), ("a",))),
    ("ap-pattern", (8, 8), HBM, lambda t: t.ap([[1, 8]]), lambda t: t.ap([[1, 0]])),
    ("ap-pattern", (8, 8), HBM, lambda t: t.ap([(1, 8)]), lambda t: t.ap([1, 8])),
    ("ap-pattern", (8, 8), CHIP, lambda t: t.ap([[8, 8], [1, 1]]), lambda t: t.ap([[8, 8]])),
    ("ap-partition-stride", (8, 8), CHIP, lambda t: t.ap([[8, 4], [1, 8]]),
     lambda t: t.ap([[16, 4], [1, 8]])),
    ("ap-offset", (8, 8), CHIP, lambda t: t.ap([[8, 4], [1, 4]], offset=4),
     lambda t: t[:, 4:].ap([[8, 4], [1, 4]], offset=0)),
    ("ap-offset", (8, 8), CHIP, lambda t: t.view(nl.bfloat16)[:, 2:].ap([[8, 4], [1, 2]],
     dtype=nl.float32),
     lambda t: t.view(nl.bfloat16)[:, 1:].ap([[8, 4], [1, 2]], dtype=nl.float32)),
    ("view-dtype", (8, 8), CHIP, lambda t: t[:, ::2].view(nl.int32),
     lambda t: t[:, ::2].view(nl.int16)),
    ("view-dtype", (8, 8), CHIP, lambda t: t.view(nl.int16)[:, 0:2].view(nl.float32),
     lambda t: t.view(nl.int16)[:, 0:3].view(nl.float32)),
    ("tensor-condition", (8, 8), CHIP, lambda t: t != None or 1, lambda t: bool(t)),  # noqa: E711
    ("tensor-condition", (8, 8), CHIP, lambda t: None == t, lambda t: t[0, 0] == 0.0),  # noqa: E711
    ("tensor-condition", (8, 8), CHIP, lambda t: t in [t, 1], lambda t: t in [1, t]),
    ("tensor-condition", (8, 8), CHIP, lambda t: t.shape, lambda t: np.asarray(t)),
    ("tensor-iteration", (8, 8), CHIP, lambda t: t.shape, lambda t: list(t)),
    ("tensor-arithmetic", (8, 8), CHIP, lambda t: t.size + 1, lambda t: t + 1),
    ("tensor-arithmetic", (8, 8), CHIP, lambda t: -t.size, lambda t: -t),
    ("tensor-arithmetic", (8, 8), CHIP, lambda t: t.size < 1, lambda t: t < 1),
    ("tensor-assignment", (8, 8), CHIP, lambda t: nisa.memset(t[0:1], 1.0),
     lambda t: t.__setitem__(0, 1.0)),
    ("rank", (8, 8), CHIP, lambda t: nl.ndarray((4, 1), nl.float32),
     lambda t: nl.ndarray((4,), nl.float32)),
    ("shape", (8, 8), HBM, lambda t: nl.ndarray([4, 1], nl.float32),
     lambda t: nl.ndarray((4, 0), nl.float32)),
    ("shape", (8, 8), HBM, lambda t: nl.ndarray((np.int64(4), 1), nl.float32),
     lambda t: nl.ndarray((4.0, 1), nl.float32)),
    ("buffer", (8, 8), HBM, lambda t: nl.ndarray((4, 4), nl.float32, nl.psum),
     lambda t: nl.ndarray((4, 4), nl.float32, "psum")),
    ("partitions", (8, 8), HBM, lambda t: nl.ndarray((128, 1), nl.float32),
     lambda t: nl.ndarray((129, 1), nl.float32)),
]  # fmt: skip


@pytest.mark.parametrize("rule, shape, buffer, good, bad", CASES)
def test_view_rules(rule, shape, buffer, good, bad):
    one(shape, buffer, rule, good, bad)


def test_an_error_in_a_view_shows_the_kernel_line():
    def kernel():
        t = nl.ndarray((8, 8), dtype=nl.float32)
        t[0:9]  # rule

    refused("out-of-bounds", kernel)


def test_recasting_is_refused_when_floats_are_stored_wide(monkeypatch):
    def kernel():
        t = nl.ndarray((8, 8), dtype=nl.bfloat16)
        t.view(nl.int16)  # rule

    simulate(kernel)()
    monkeypatch.setenv("NKI_PRECISE_FP", "0")
    refused("view-dtype", kernel)


def test_a_tensor_compares_with_none_only():
    def kernel():
        t = nl.ndarray((8, 8), dtype=nl.float32)
        assert (t == None) is False and (None == t) is False and (t != None) is True  # noqa: E711
        assert t in [t] and hash(t)

    inside(kernel)


def test_print_shows_values_and_marks_what_was_never_written(capsys):
    def kernel():
        t = nl.ndarray((2, 2), dtype=nl.bfloat16, name="acc")
        nisa.memset(dst=t[:, 0:1], value=1.5)
        print(t)
        nl.device_print("half:", t[:, 0:1])
        nisa.memset(dst=t, value=2.0)
        print(t)

    inside(kernel)
    text = capsys.readouterr().out
    assert "'acc'" in text and "bfloat16[2, 2]" in text
    assert "[[1.5 -]\n [1.5 -]]" in text and "half: " in text and "[[2. 2.]" in text


def test_device_print_rules():
    def from_buffer(buffer):
        nl.device_print("x", tile((2, 2), buffer=buffer))  # rule

    def with_prefix(prefix):
        nl.device_print(prefix, tile((2, 2)))  # rule

    pair("device-print", from_buffer, (nl.sbuf,), (nl.psum,))
    pair("device-print", with_prefix, ("x",), (1,))


def test_a_matrix_read_through_a_permuted_view():
    def kernel(x, out):
        t = nl.ndarray((8, 3, 5), dtype=nl.float32)
        nisa.dma_copy(dst=t, src=x)
        nisa.dma_copy(dst=out, src=t.permute((0, 2, 1)))

    x, out = values((8, 3, 5)), np.zeros((8, 5, 3), np.float32)
    simulate(kernel)(x, out)
    np.testing.assert_array_equal(out, x.transpose(0, 2, 1))
