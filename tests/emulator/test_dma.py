"""DMA copies and transposes."""

from .support import (
    NUMPY,
    load,
    ml_dtypes,
    nisa,
    nl,
    np,
    pair,
    pytest,
    refused,
    rounded,
    same_bits,
    save,
    simulate,
    tile,
    values,
)  # fmt: skip

P, S, H = nl.psum, nl.sbuf, nl.shared_hbm
F, BF = "float32", "bfloat16"
DGE, OOB, ENGINE = nisa.dge_mode, nisa.oob_mode, nisa.engine
DTYPES = sorted(set(NUMPY) - {"float8_e8m0fnu"})


@pytest.mark.parametrize("source", DTYPES)
@pytest.mark.parametrize("target", ["float32", "bfloat16", "float16", "int8", "float8_e5m2"])
def test_dma_copy_converts_through_float32(source, target):
    def kernel(x):
        return save(load(x, dtype=target))

    x = values((5, 7), source)
    got, wide = simulate(kernel)(x), x.astype(np.float32)
    if source == target:
        same_bits(got, x)
    elif target == "int8":
        np.testing.assert_array_equal(got, np.clip(np.rint(wide), -128, 127))
    else:
        same_bits(got, rounded(wide, target))


def test_equal_dtypes_move_every_bit():
    def kernel(x):
        return save(load(x))

    bits = np.random.default_rng(0).integers(0, 2**16, (8, 64), dtype=np.uint16)
    for dtype in (ml_dtypes.bfloat16, np.float16, np.int16):
        same_bits(simulate(kernel)(bits.view(dtype)), bits.view(dtype))


def test_shapes_may_differ_if_the_counts_agree():
    def kernel(x):
        t = nl.ndarray((6, 20), dtype=nl.float32)
        nisa.dma_copy(dst=t, src=x)
        return save(t.reshape((6, 4, 5)))

    x = values((2, 3, 4, 5))
    same_bits(simulate(kernel)(x), x.reshape(6, 4, 5))


def test_permuted_broadcast_and_strided_hbm_views():
    def kernel(x, row, out):
        t = nl.ndarray((4, 3, 5), dtype=nl.float32)
        nisa.dma_copy(dst=t, src=x.permute((2, 0, 1)))
        repeated = nl.ndarray((4, 6), dtype=nl.float32)
        nisa.dma_copy(dst=repeated, src=row.expand_dim(0).broadcast(0, 4))
        every_other = nl.ndarray((2, 3), dtype=nl.float32)
        nisa.dma_copy(dst=every_other, src=row.ap(pattern=[[1, 2], [2, 3]]))
        nisa.dma_copy(dst=out[:, ::2, :], src=t[:, 0:2, :])
        return save(t), save(repeated), save(every_other)

    x, row, out = values((3, 5, 4)), values((6,)), np.zeros((4, 3, 5), np.float32)
    moved, repeated, every_other = simulate(kernel)(x, row, out)
    same_bits(moved, np.ascontiguousarray(x.transpose(2, 0, 1)))
    same_bits(repeated, np.tile(row, (4, 1)))
    same_bits(every_other, np.stack([row[0::2], row[1::2]]))
    same_bits(np.ascontiguousarray(out[:, ::2]), np.ascontiguousarray(moved[:, 0:2]))
    assert (out[:, 1] == 0).all()


def test_any_partition_may_start_a_transfer():
    def kernel(x):
        t = tile((128, 4))
        nisa.dma_copy(dst=t[37:42], src=x)
        return save(t[37:42])

    x = values((5, 4))
    same_bits(simulate(kernel)(x), x)


def test_copies_between_overlapping_views_read_before_they_write():
    def kernel(x):
        t = load(x)
        nisa.dma_copy(dst=t[:, 1:6], src=t[:, 0:5])
        return save(t)

    x = values((4, 6))
    expected = x.copy()
    expected[:, 1:6] = x[:, 0:5]
    same_bits(simulate(kernel)(x), expected)


def moved(dst=((8, 6), F, S), src=((8, 6), F, S), **options):
    operands = []
    for shape, dtype, buffer in (dst, src):
        made = tile(shape, dtype, S if buffer is H else buffer)
        operands.append(save(made) if buffer is H else made)
    nisa.dma_copy(*operands, **options)  # rule


RULES = [
    ("dma-psum", {}, {"dst": ((8, 6), F, P)}),
    ("dma-psum", {"src": ((8, 6), F, H)}, {"src": ((8, 6), F, P)}),
    ("dma-size", {"dst": ((6, 8), F, S)}, {"dst": ((6, 7), F, S)}),
    ("enum", {"oob_mode": OOB.error}, {"oob_mode": 0}),
    ("enum", {"dge_mode": DGE.none}, {"dge_mode": 2}),
    ("enum", {"dge_mode": DGE.hwdge, "engine": ENGINE.sync},
     {"dge_mode": DGE.hwdge, "engine": ENGINE.vector}),
    ("dma-engine", {"dge_mode": DGE.hwdge, "engine": ENGINE.scalar},
     {"dge_mode": DGE.swdge, "engine": ENGINE.scalar}),
    ("dma-hwdge-dtype", {"dge_mode": DGE.swdge, "dst": ((8, 6), BF, S)},
     {"dge_mode": DGE.hwdge, "dst": ((8, 6), BF, S)}),
    ("dma-oob", {}, {"oob_mode": OOB.skip}),
    ("target", {}, {"priority": 0}),
    ("packed-dtype", {"src": ((8, 6), "float8_e5m2_x4", S), "dst": ((8, 6), "float8_e5m2_x4", S)},
     {"src": ((8, 6), "float8_e5m2_x4", S)}),
]  # fmt: skip


@pytest.mark.parametrize("rule, good, bad", RULES)
def test_dma_copy_rules(rule, good, bad):
    pair(rule, lambda change: moved(**change), (good,), (bad,))


def test_priority_is_0_to_3_on_gen4(on_target):
    on_target("trn3")
    pair("dma-priority", lambda p: moved(priority=p), 3, 4)


def test_hardware_descriptors_need_gen3(on_target):
    simulate(lambda: moved(dge_mode=DGE.hwdge))()
    on_target("trn1")
    refused("target", lambda: moved(dge_mode=DGE.hwdge))


# dma_transpose.


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int16", "uint32"])
@pytest.mark.parametrize(
    "shape, axes", [((20, 9), (1, 0)), ((3, 4, 5), (2, 1, 0)), ((2, 3, 4, 5), (3, 1, 2, 0))]
)
@pytest.mark.parametrize("on_chip", [False, True])
def test_dma_transpose(dtype, shape, axes, on_chip):
    def kernel(x):
        dst = nl.ndarray(tuple(shape[a] for a in axes), dtype=x.dtype)
        nisa.dma_transpose(dst=dst, src=load(x) if on_chip else x, axes=axes)
        nisa.dma_transpose(dst=dst, src=load(x) if on_chip else x)
        return save(dst)

    x = values(shape, dtype)
    same_bits(simulate(kernel)(x), np.ascontiguousarray(x.transpose(axes)))


def transposed(src=((16, 8), BF, S), dst=((8, 16), BF, S), **options):
    source = tile(*src)
    made = nl.ndarray(dst[0], dtype=dst[1], buffer=dst[2])
    nisa.dma_transpose(made, source, **options)  # rule


TRANSPOSE_RULES = [
    ("dma-transpose-axes", {"axes": (1, 0)}, {"axes": (0, 1)}),
    ("dma-transpose-axes",
     {"src": ((2, 3, 4), BF, S), "dst": ((4, 3, 2), BF, S), "axes": (2, 1, 0)},
     {"src": ((2, 3, 4), BF, S), "dst": ((4, 2, 3), BF, S), "axes": (2, 0, 1)}),
    ("dma-transpose-shape", {}, {"dst": ((8, 17), BF, S)}),
    ("dma-transpose-shape", {"src": ((2, 1, 4), BF, S), "dst": ((4, 1, 2), BF, S)},
     {"src": ((2, 1, 4), BF, S), "dst": ((4, 2), BF, S)}),
    ("same-dtype", {}, {"dst": ((8, 16), "float16", S)}),
    ("dma-transpose-dtype", {"src": ((16, 8), F, S), "dst": ((8, 16), F, S)},
     {"src": ((16, 8), "int8", S), "dst": ((8, 16), "int8", S)}),
    ("dma-transpose-dge", {"dge_mode": DGE.unknown}, {"dge_mode": DGE.swdge}),
    ("dma-transpose-hwdge", {"dge_mode": DGE.hwdge},
     {"dge_mode": DGE.hwdge, "src": ((15, 8), BF, S), "dst": ((8, 15), BF, S)}),
    ("dma-transpose-hwdge", {"dge_mode": DGE.hwdge},
     {"dge_mode": DGE.hwdge, "src": ((16, 8), F, S), "dst": ((8, 16), F, S)}),
    ("dma-transpose-hwdge",
     {"dge_mode": DGE.hwdge, "src": ((4, 4, 8), BF, S), "dst": ((8, 4, 4), BF, S)},
     {"dge_mode": DGE.hwdge, "src": ((4, 3, 8), BF, S), "dst": ((8, 3, 4), BF, S)}),
    ("buffer-sbuf", {}, {"dst": ((8, 16), BF, P)}),
    ("buffer-sbuf", {}, {"dst": ((8, 16), BF, H)}),
    ("dma-psum", {}, {"src": ((16, 8), BF, P)}),
    ("dma-oob", {}, {"oob_mode": OOB.skip}),
]  # fmt: skip


@pytest.mark.parametrize("rule, good, bad", TRANSPOSE_RULES)
def test_dma_transpose_rules(rule, good, bad):
    pair(rule, lambda change: transposed(**change), (good,), (bad,))
