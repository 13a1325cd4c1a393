"""get-started/about/lnc.rst and the stubs of core_barrier and sendrecv: two cores."""

from nki_emulator import NkiValidationError

from .support import load, nisa, nki, nl, np, pytest, same_bits, save, tile, values


def test_how_a_kernel_is_launched(capsys):
    """Section "Launching a kernel on multiple cores", "Programming for multiple cores"."""

    @nki.jit
    def kernel(x):
        print("several" if nl.num_programs() > 1 else "one", nl.program_id(0))

    x = values((2, 2))
    kernel(x)
    kernel[1](x)
    kernel[2](x)
    assert capsys.readouterr().out == "one 0\none 0\nseveral 0\nseveral 1\n"
    for cores in (8, 3, (2, 1)):
        with pytest.raises(TypeError):
            kernel[cores]


def test_two_cores_need_neuroncore_v3(on_target):
    """Section "Launching a kernel on multiple cores": an error if the architecture has fewer."""
    on_target("trn1")
    kernel = nki.jit(lambda x: None)
    kernel(values((2, 2)))
    with pytest.raises(NkiValidationError) as caught:
        kernel[2](values((2, 2)))
    assert caught.value.rule == "target"


def test_one_source_for_one_core_and_for_two():
    """Section "Programming for multiple cores": a kernel that divides its work when it can."""

    @nki.jit
    def inverse(x):
        assert x.shape[0] == 2
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        mine = range(2) if nl.num_programs() == 1 else (nl.program_id(0),)
        for i in mine:
            t = load(x[i])
            nisa.reciprocal(t, t)
            nisa.dma_copy(out[i], t)
        return out

    x = values((2, 16, 16)) + 4
    for launch in (inverse, inverse[1], inverse[2]):
        same_bits(launch(x), np.float32(1) / x)


def halves(synchronise):
    """Each core writes half of a shared tensor and reads all of it."""

    @nki.jit
    def kernel(x):
        size = x.shape[0] // 2
        shared = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        out = nl.ndarray((2, *x.shape), dtype=x.dtype, buffer=nl.shared_hbm)
        core = nl.program_id(0)
        mine = slice(core * size, (core + 1) * size)
        t = load(x[mine])
        nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(dst=shared[mine, :], src=t)
        if synchronise:
            nisa.core_barrier(data=shared, cores=(0, 1))
        nisa.dma_copy(dst=out[core], src=load(shared))
        return out

    return kernel[2]


def test_a_barrier_before_the_other_half_is_read():
    """Stub of core_barrier: the use case of its description, and what it is for."""
    x = values((8, 4))
    same_bits(halves(True)(x), np.stack([2 * x, 2 * x]))
    with pytest.raises(Exception) as caught:
        halves(False)(x)
    assert caught.value.rule in ("hbm-race", "uninitialized-read")


def test_a_ring_of_two():
    """Stub of sendrecv: each core sends its tile to the next and receives the previous one's."""

    @nki.jit
    def kernel(x):
        core = nl.program_id()
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        received = nl.ndarray(x.shape[1:], dtype=x.dtype, buffer=nl.sbuf)
        nisa.sendrecv(
            src=load(x[core]), dst=received, send_to_rank=(core + 1) % 2,
            recv_from_rank=(core - 1) % 2, pipe_id=0,
        )  # fmt: skip
        nisa.dma_copy(dst=out[core], src=received)
        return out

    x = values((2, 8, 4), "bfloat16")
    same_bits(kernel[2](x), np.ascontiguousarray(x[::-1]))


def test_what_the_gpsimd_dma_can_move():
    """Stub of sendrecv, dma_engine: 1024, 512 and 256 bytes of 4-, 2- and 1-byte types."""

    def swap(width, dtype):
        @nki.jit
        def kernel():
            other = 1 - nl.program_id()
            src, dst = tile((4, width), dtype), tile((4, width), dtype)
            nisa.sendrecv(src, dst, other, other, 0, dma_engine=nisa.dma_engine.gpsimd_dma)

        return kernel[2]

    for dtype in (nl.float32, nl.bfloat16, nl.uint8):
        swap(256, dtype)()
        with pytest.raises(NkiValidationError) as caught:
            swap(257, dtype)()
        assert caught.value.rule == "sendrecv-size"


def test_two_cores_that_do_not_do_the_same():
    """Section "Final Notes": the program on each core is the same; anything else is an error."""

    @nki.jit
    def kernel(x):
        shared = nl.ndarray((2, 2), dtype=nl.float32, buffer=nl.shared_hbm)
        if nl.program_id() == 0:
            nisa.core_barrier(shared, (0, 1))
        return save(load(x))

    with pytest.raises(NkiValidationError) as caught:
        kernel[2](values((2, 2)))
    assert caught.value.rule == "lnc-deadlock"


def test_barriers_and_exchanges_need_two_cores():
    """Stubs of core_barrier and sendrecv: only with LNC."""

    def barrier():
        shared = nl.ndarray((2, 2), dtype=nl.float32, buffer=nl.shared_hbm)
        nisa.core_barrier(shared, (0, 1))

    def exchange():
        nisa.sendrecv(tile((2, 2)), tile((2, 2)), 1, 1, 0)

    for kernel in (barrier, exchange):
        with pytest.raises(NkiValidationError) as caught:
            nki.simulate(kernel)()
        assert caught.value.rule == "lnc2-only"
