"""Packed x4 types outside the MX instructions: how they move, and what they are not for."""

from .support import load, ml_dtypes, nisa, nl, np, pair, pytest, save, simulate, tile

S = nl.sbuf
E5M2, E4M3, E2M1 = nl.float8_e5m2_x4, nl.float8_e4m3fn_x4, nl.float4_e2m1fn_x4


@pytest.fixture(autouse=True)
def trn3(on_target):
    on_target("trn3")


@pytest.mark.parametrize("name, host", [(E5M2, np.uint32), (E4M3, np.uint32), (E2M1, np.uint16)])
def test_packed_elements_move_as_bits(name, host):
    def kernel(x):
        assert nl.ndarray((2, 3), dtype=name, buffer=S).dtype == name
        data = load(x).view(name)
        copy = nl.ndarray(data.shape, dtype=name, buffer=S)
        nisa.tensor_copy(copy, data)
        turned = nl.ndarray((6, 4), dtype=name, buffer=S)
        nisa.dma_transpose(turned, copy)
        out = nl.ndarray((6, 4), dtype=name, buffer=nl.shared_hbm)
        nisa.dma_copy(out, turned, dge_mode=nisa.dge_mode.hwdge)
        return out, save(copy.view(nl.uint8))

    x = np.random.default_rng(0).integers(0, 1 << 16, (4, 6), dtype=host)
    turned, raw = simulate(kernel)(x)
    assert turned.dtype == host
    np.testing.assert_array_equal(turned, x.T)
    np.testing.assert_array_equal(raw, x.view(np.uint8))


@pytest.mark.parametrize("host", [np.uint8, ml_dtypes.float8_e4m3fn])
def test_host_bytes_are_seen_as_packed_elements(host):
    """Four bytes become one element, the first byte in its lowest bits."""

    def kernel(x):
        packed = x.view(E4M3)
        assert packed.shape == (4, 2)
        out = nl.ndarray((4, 2), dtype=nl.uint32, buffer=nl.shared_hbm)
        nisa.dma_copy(out.view(E4M3), packed)
        nisa.dma_copy(out, x.ap([[2, 4], [1, 2]], dtype=nl.uint32))
        return out

    x = np.arange(32, dtype=np.uint8).reshape(4, 8)
    got = simulate(kernel)(x.view(host))
    expected = (x.reshape(4, 2, 4).astype(np.uint32) << (8 * np.arange(4, dtype=np.uint32))).sum(-1)
    np.testing.assert_array_equal(got, expected)


def test_torch_tensors_hold_packed_elements():
    torch = pytest.importorskip("torch")

    def kernel(x):
        packed = x.view(E2M1)
        assert packed.shape == (4, 4)
        out = nl.ndarray((4, 8), dtype=nl.uint8, buffer=nl.shared_hbm)
        nisa.dma_copy(out.view(E2M1), packed)
        return out

    x = torch.arange(32, dtype=torch.uint8).reshape(4, 8)
    assert torch.equal(simulate(kernel)(x), x)


def test_packed_types_hold_bits_in_both_precisions(monkeypatch):
    x = np.full((32, 4), 1 + 2.0**-7, ml_dtypes.bfloat16)

    def kernel(x):
        dst = nl.ndarray((32, 1), dtype=E4M3, buffer=S)
        scale = nl.ndarray((32, 1), dtype=nl.uint8, buffer=S)
        nisa.quantize_mx(dst, load(x), scale)
        return save(dst)

    expected = simulate(kernel)(x)
    monkeypatch.setenv("NKI_PRECISE_FP", "0")
    np.testing.assert_array_equal(simulate(kernel)(x), expected)


@pytest.mark.parametrize("name", [E5M2, E4M3, E2M1])
def test_packed_elements_are_filled_with_zero_only(name):
    def kernel(value):
        nisa.memset(nl.ndarray((4, 4), name, S), value)  # rule

    pair("memset-packed", kernel, 0, 1)


def test_packed_elements_are_not_converted_or_computed_with():
    def copied(src, dst):
        nisa.tensor_copy(nl.ndarray((4, 4), dst, S), tile((4, 4), src))  # rule

    def loaded(src, dst):
        nisa.dma_copy(nl.ndarray((4, 4), dst, S), tile((4, 4), src))  # rule

    def doubled(dtype):
        data = tile((4, 4), dtype)
        nisa.tensor_scalar(data, data, nl.multiply, 2.0)  # rule

    for kernel in (copied, loaded):
        pair("packed-dtype", kernel, (E4M3, E4M3), (E4M3, nl.uint32))
        pair("packed-dtype", kernel, (E2M1, E2M1), (nl.uint16, E2M1))
        pair("packed-dtype", kernel, (E5M2, E5M2), (E5M2, E4M3))
    pair("packed-dtype", doubled, nl.float32, E5M2)
