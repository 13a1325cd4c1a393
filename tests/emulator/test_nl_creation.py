"""nki.language that makes tensors: filled, like another, random; and nki.typing, nki.dtype."""

import re

from nki_emulator import NkiWarning, record

from .numeric import DTYPES, f32
from .support import (
    NUMPY,
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
    tile,
    values,
)  # fmt: skip

P, S = nl.psum, nl.sbuf
HBM = nl.shared_hbm


# zeros, ones and full.


@pytest.mark.parametrize("dtype", [*DTYPES, "float8_e8m0fnu"])
@pytest.mark.parametrize("buffer", [S, P, HBM])
def test_filled(dtype, buffer):
    value = 1 if dtype == "bool" else 2

    def kernel():
        made = nl.ones((9, 5), dtype, buffer), nl.full((9, 5), value, dtype, buffer=buffer)
        assert all(tensor.buffer == buffer and tensor.shape == (9, 5) for tensor in made)
        return made if buffer == HBM else tuple(save(tensor) for tensor in made)

    ones, filled = simulate(kernel)()
    same_bits(ones, np.ones((9, 5), NUMPY[dtype]))
    same_bits(filled, np.full((9, 5), value).astype(NUMPY[dtype]))


@pytest.mark.parametrize("buffer", [S, P, nl.hbm])
def test_zeros(buffer):
    def kernel():
        made = nl.zeros((9, 5, 2), nl.bfloat16, buffer, "nothing")
        assert made.name == "nothing"
        return save(nl.load(made) if buffer == nl.hbm else made)

    same_bits(simulate(kernel)(), np.zeros((9, 5, 2), NUMPY["bfloat16"]))


@pytest.mark.parametrize("shape", [(1,), (513,), (300, 7), (2, 3, 40000), (128, 512), (65535,)])
def test_filled_in_hbm_of_any_shape(shape):
    def kernel():
        return nl.full(shape, 1.5, nl.float32, HBM)

    same_bits(simulate(kernel)(), np.full(shape, 1.5, np.float32))


def test_filling_hbm_takes_one_small_tile():
    def kernel():
        nl.zeros((4, 128, 2048), nl.float32, nl.private_hbm)

    _, session = record(kernel)()
    assert session.sbuf.peak == 2048
    assert session.counts == {"memset": 1, "dma_copy": 16}


def test_the_value_is_of_the_class_of_the_dtype():
    def kernel(value, dtype, buffer):
        nl.full((4, 4), value, dtype, buffer)  # rule

    for buffer in (S, HBM):
        pair("memset-type", kernel, (2, nl.int32, buffer), (2.0, nl.int32, buffer))
    pair("buffer", kernel, (2, nl.int32, S), (2, nl.int32, "sbuf"))


# zeros_like and empty_like.


def test_zeros_like_is_in_sbuf_unless_told():
    def kernel(x):
        like = nl.zeros_like(x)
        assert (like.buffer, like.dtype, like.shape) == (S, nl.bfloat16, (5, 3))
        other = nl.zeros_like(load(x), dtype=nl.int8, buffer=HBM, name="other")
        assert (other.buffer, other.dtype, other.name) == (HBM, nl.int8, "other")
        return save(like), other

    like, other = simulate(kernel)(values((5, 3), "bfloat16"))
    same_bits(like, np.zeros((5, 3), NUMPY["bfloat16"]))
    same_bits(other, np.zeros((5, 3), np.int8))


@pytest.mark.parametrize("buffer", [S, P, HBM])
def test_empty_like_is_where_the_tensor_is(buffer):
    def kernel():
        x = nl.ndarray((5, 3), nl.float16, buffer)
        like = nl.empty_like(x)
        assert (like.buffer, like.dtype, like.shape) == (buffer, nl.float16, (5, 3))
        other = nl.empty_like(x[:, ::2], nl.int8, S, "other")
        assert (other.buffer, other.dtype, other.shape) == (S, nl.int8, (5, 2))

    simulate(kernel)()


def test_empty_like_is_uninitialised():
    def kernel(write):
        like = nl.empty_like(tile((4, 4)))
        if write:
            nisa.memset(dst=like, value=0.0)
        nl.copy(like)  # rule

    pair("uninitialized-read", kernel, True, False)


@pytest.mark.parametrize("name", ["zeros_like", "empty_like"])
def test_like_needs_a_tensor(name):
    def kernel(x):
        getattr(nl, name)(tile((4, 4)) if x is None else x)  # rule

    pair("operand-type", kernel, (None,), ((4, 4),))


# rand and random_seed.


@pytest.fixture(params=["trn2", "trn3"])
def target(request, on_target):
    on_target(request.param)
    return request.param


@pytest.mark.parametrize("buffer", [S, P, HBM])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_rand(buffer, dtype, target):
    def kernel():
        made = nl.rand((128, 400), dtype, buffer)
        assert made.buffer == buffer and made.dtype == dtype
        return made if buffer == HBM else save(made)

    x = f32(simulate(kernel)())
    assert 0 <= x.min() < 0.001 and 0.999 < x.max() <= 1
    if dtype == "float32":
        assert x.max() < 1
    counts = np.histogram(x, 8, (0, 1))[0] / x.size
    assert np.abs(counts - 1 / 8).max() < 0.01
    assert abs(np.corrcoef(x[::2].ravel(), x[1::2].ravel())[0, 1]) < 0.02


def test_rand_in_hbm_of_any_shape(target):
    def kernel():
        return nl.rand((3, 1000), nl.float32, HBM)

    x = simulate(kernel)()
    assert len(np.unique(x)) > 2800  # 16 bits on trn2: some of 3000 numbers are equal.


@pytest.mark.filterwarnings("ignore::nki_emulator.NkiWarning")
@pytest.mark.parametrize("dtype", ["int32", "uint32", "float32"])
@pytest.mark.parametrize("buffer", [S, P])
def test_a_seed_repeats_the_numbers(dtype, buffer, target):
    def kernel(first, second):
        made = []
        for seed in (first, second):
            nl.random_seed(nl.full((1, 1), seed, dtype, buffer))
            made.append(save(nl.rand((16, 32), nl.float32)))
            made.append(save(nl.rand((16, 32), nl.float32)))
        return tuple(made)

    a, b, c, d = simulate(kernel)(42, 42)
    same_bits(a, c)
    same_bits(b, d)
    assert (a != b).any()
    a, _, c, _ = simulate(kernel)(42, 43)
    assert (a != c).any()


def test_seeding_may_not_reach_rand_before_gen4(on_target, recwarn):
    def kernel():
        nl.random_seed(nl.full((1, 1), 42, nl.int32))

    on_target("trn3")
    simulate(kernel)()
    assert not recwarn.list
    on_target("trn2")
    with pytest.warns(NkiWarning, match=re.escape("[random-seed-engine]")):
        simulate(kernel)()


@pytest.mark.filterwarnings("ignore::nki_emulator.NkiWarning")
def test_a_seed_is_a_tile():
    def kernel(seed):
        nl.random_seed(nl.full((1, 1), 7, nl.int32) if seed is None else seed)  # rule

    error = pair("random-seed", kernel, (None,), (42,))
    assert "nl.full((1, 1), 42" in str(error)


def test_the_instructions_of_rand(on_target):
    def kernel():
        nl.rand((4, 4), nl.float32)

    for name, expected in (("trn2", {"rng": 1, "tensor_scalar": 1}), ("trn3", {"rand2": 1})):
        on_target(name)
        _, session = record(kernel)()
        assert session.counts == expected


# shared_constant.


@pytest.mark.parametrize(
    "dtype",
    ["float32", "float16", "bfloat16", "int32", "int16", "int8", "uint32", "uint16", "uint8",
     "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"],
)  # fmt: skip
def test_constants_of_every_documented_dtype(dtype):
    array = np.arange(1, 7).reshape(2, 3).astype(NUMPY[dtype])

    def kernel():
        constant = nl.shared_constant(array)
        assert constant.dtype == dtype and constant.buffer == HBM
        return save(load(constant))

    same_bits(simulate(kernel)(), array)


def test_constants_of_other_dtypes():
    def kernel(dtype):
        nl.shared_constant(np.ones((2, 2), NUMPY.get(dtype, dtype)))  # rule

    pair("constant", kernel, "uint8", "bool")
    refused("constant", kernel, "float8_e4m3")
    refused("constant", kernel, "int64")


# device_print.


def test_device_print(capsys):
    def kernel(x, where):
        loaded = load(x)
        moved = tile((1, 2), buffer=P)
        tensor = {"hbm": x, "sbuf": loaded, "psum": moved, "number": 1}[where]
        nl.device_print("here", tensor)  # rule

    x = np.array([[1.5, 2.5]], np.float32)
    for where in ("hbm", "sbuf"):
        simulate(kernel)(x, where)
        printed = capsys.readouterr().out
        assert printed.startswith("here ") and "[[1.5 2.5]]" in printed
    pair("device-print", kernel, (x, "sbuf"), (x, "psum"))
    pair("operand-type", kernel, (x, "sbuf"), (x, "number"))


# Annotations.


def test_annotations():
    import nki.typing as nt

    @nki.jit
    def kernel(x: nt.tensor[4, 4], y: nt.mutable_tensor, dtype: nki.dtype = nl.float32):
        nl.store(y, nl.load(x, dtype=dtype))

    x, y = values((4, 4)), np.zeros((4, 4), np.float32)
    nki.simulate(kernel)(x, y)
    same_bits(y, x)
    assert nt.tensor[128, 512].__args__ == (128, 512)
