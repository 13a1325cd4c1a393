"""Reading what nothing wrote is an error; a written NaN is a value like any other."""

from nki_emulator import NkiUninitializedRead

from .support import nisa, nl, np, pair, pytest, refused, save, simulate, tile


def read(t):
    nisa.tensor_copy(dst=nl.ndarray(t.shape, dtype=nl.float32), src=t)  # rule


def half_written(first, last):
    t = nl.ndarray((64, 10), dtype=nl.float32, name="half")
    nisa.memset(dst=t[0:32, :], value=1.0)
    nisa.memset(dst=t[32:64, 0:5], value=1.0)
    read(t[:, first:last])


def test_half_written_tile():
    error = pair("uninitialized-read", half_written, (0, 5), (2, 6))
    assert isinstance(error, NkiUninitializedRead)
    text = str(error)
    assert "src is read at [32, 3]" in text and "32 of 256" in text
    assert "half float32[64, 10]" in text and "src=float32[64, 4] sbuf 'half'" in text


@pytest.mark.parametrize("dtype", [nl.float32, nl.bfloat16, nl.int32, nl.uint8, nl.float8_e5m2])
def test_fresh_tile_of_any_dtype(dtype):
    def kernel(write):
        t = nl.ndarray((4, 4), dtype=dtype)
        if write:
            nisa.memset(dst=t, value=0)
        read(t)

    pair("uninitialized-read", kernel, True, False)


def test_a_written_nan_is_a_value():
    def kernel(x):
        t = nl.ndarray((4, 4), dtype=nl.float32)
        nisa.dma_copy(dst=t, src=x)
        return save(t)

    x = np.full((4, 4), np.nan, np.float32)
    assert np.isnan(simulate(kernel)(x)).all()


def test_memory_starts_as_nan_or_four():
    def kernel():
        for dtype in (nl.float32, nl.bfloat16, nl.float16, nl.float8_e4m3, nl.float8_e5m2,
                      nl.float8_e4m3fn, nl.tfloat32):  # fmt: skip
            assert np.isnan(nl.ndarray((2, 2), dtype=dtype).array.astype(np.float32)).all()
        for dtype in (nl.int8, nl.int16, nl.int32, nl.uint8, nl.uint16, nl.uint32):
            assert (nl.ndarray((2, 2), dtype=dtype).array == 4).all()

    simulate(kernel)()


def test_parts_written_through_different_views_add_up():
    def kernel():
        t = nl.ndarray((8, 4, 4), dtype=nl.float32)
        for column in range(4):
            nisa.memset(dst=t.permute((0, 2, 1))[:, column], value=1.0)
        assert t.storage.complete
        read(t)

    simulate(kernel)()


def test_overlapping_writes_do_not_count_twice():
    def kernel(last):
        t = nl.ndarray((4, 8), dtype=nl.float32)
        for high in range(1, last):
            nisa.memset(dst=t[:, 0:high], value=1.0)
        read(t)

    pair("uninitialized-read", kernel, 9, 8)


def test_a_repeating_pattern_does_not_count_as_the_whole_tile():
    def kernel(stride):
        t = nl.ndarray((4, 8), dtype=nl.float32)
        nisa.memset(dst=t.ap(pattern=[[8, 4], [stride, 8]]), value=1.0)
        read(t)

    pair("uninitialized-read", kernel, 1, 0)


def test_a_written_broadcast_view_marks_its_element_only():
    def kernel(read_all):
        t = nl.ndarray((4, 8), dtype=nl.float32)
        nisa.memset(dst=t[:, 0:1].broadcast(1, 8), value=1.0)
        read(t if read_all else t[:, 0:1])

    pair("uninitialized-read", kernel, False, True)


def test_narrower_and_wider_views():
    def kernel(bytes_written):
        t = nl.ndarray((4, 8), dtype=nl.float32)
        nisa.memset(dst=t.view(nl.uint8)[:, 0:bytes_written], value=0)
        read(t[:, 0:2])

    pair("uninitialized-read", kernel, 8, 7)


def test_wider_view_of_a_narrow_tile():
    def kernel(columns):
        t = nl.ndarray((4, 8), dtype=nl.uint8)
        nisa.memset(dst=t[:, 0:columns], value=0)
        read(t.view(nl.float32)[:, 0:1])

    pair("uninitialized-read", kernel, 4, 3)


def test_every_operand_role_is_named():
    def kernel(role):
        good = tile((4, 4))
        column = tile((4, 1))
        bad = nl.ndarray((4, 4), dtype=nl.float32)
        bad_column = nl.ndarray((4, 1), dtype=nl.float32)
        nisa.scalar_tensor_tensor(  # rule
            dst=nl.ndarray((4, 4), dtype=nl.float32),
            data=bad if role == "data" else good,
            op0=nl.add,
            operand0=bad_column if role == "operand0" else column,
            op1=nl.add,
            operand1=bad if role == "operand1" else good,
        )

    for role in ("data", "operand0", "operand1"):
        error = refused("uninitialized-read", kernel, role, line=None)
        assert f"{role} is read" in str(error)
    simulate(kernel)("none")


def test_hbm_results_must_be_written_before_they_are_read():
    def kernel(rows):
        out = nl.ndarray((4, 4), dtype=nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out[0:rows], src=tile((rows, 4)))
        nisa.dma_copy(dst=nl.ndarray((4, 4), dtype=nl.float32), src=out)  # rule

    pair("uninitialized-read", kernel, 4, 3)


def test_values_do_not_matter():
    """A tile that happens to hold finite numbers is still unwritten."""

    def kernel():
        t = nl.ndarray((4, 4), dtype=nl.float32)
        t.array[...] = 1.0
        read(t)

    refused("uninitialized-read", kernel)
