"""quantize_mx and nc_matmul_mx: every rule, broken and just obeyed."""

from nki_emulator import NkiUninitializedRead, record

from .support import nisa, nl, np, pair, pytest, refused, save, simulate, tile

P, S = nl.psum, nl.sbuf
E5M2, E4M3, E2M1 = nl.float8_e5m2_x4, nl.float8_e4m3fn_x4, nl.float4_e2m1fn_x4
BF16 = nl.bfloat16


@pytest.fixture(autouse=True)
def trn3(on_target):
    on_target("trn3")


def quantize(
    shape=(64, 16), src=BF16, dst=E4M3, scale=nl.uint8, dst_shape=None, scale_shape=None,
    buffers=(S, S, S), value=1.0,
):  # fmt: skip
    source = tile(shape, src, buffers[1], value)
    small = (shape[0], max(shape[1] // 4, 1))
    made = nl.ndarray(dst_shape or small, dtype=dst, buffer=buffers[0])
    scales = nl.ndarray(scale_shape or small, dtype=scale, buffer=buffers[2])
    nisa.quantize_mx(made, source, scales)  # rule


QUANTIZE = [
    ("mx-source-dtype", {"src": nl.float16}, {"src": nl.float32}),
    ("mx-source-dtype", {"src": BF16}, {"src": nl.float8_e4m3fn}),
    ("mx-dtype", {"dst": E5M2}, {"dst": E2M1}),
    ("mx-dtype", {"dst": E5M2}, {"dst": nl.uint32}),
    ("mx-scale-dtype", {"scale": nl.float8_e8m0fnu}, {"scale": nl.int8}),
    ("mx-scale-dtype", {"scale": nl.uint8}, {"scale": BF16}),
    ("mx-partitions", {"shape": (32, 8)}, {"shape": (31, 8)}),
    ("mx-partitions", {"shape": (96, 8)}, {"shape": (100, 8)}),
    ("mx-free-size", {"shape": (32, 8)}, {"shape": (32, 6), "dst_shape": (32, 1)}),
    ("mx-dst-shape", {"dst_shape": (64, 2, 2)}, {"dst_shape": (64, 5)}),
    ("mx-dst-shape", {}, {"dst_shape": (32, 8)}),
    ("mx-scale-shape", {"shape": (32, 8), "scale_shape": (4, 2)},
     {"shape": (32, 8), "scale_shape": (3, 2)}),
    ("mx-scale-shape", {"scale_shape": (36, 4)}, {"scale_shape": (8, 4)}),
    ("mx-scale-shape", {}, {"scale_shape": (128, 4)}),
    ("mx-scale-shape", {}, {"scale_shape": (64, 5)}),
    ("mx-nonfinite", {"value": 3.0e38}, {"value": float("inf")}),
    ("mx-nonfinite", {"value": -3.0e38}, {"value": float("nan")}),
    ("buffer-sbuf", {}, {"buffers": (S, P, S)}),
    ("buffer-sbuf", {}, {"buffers": (P, S, S)}),
    ("buffer-sbuf", {}, {"buffers": (S, S, P)}),
]  # fmt: skip


@pytest.mark.parametrize("rule, good, bad", QUANTIZE)
def test_quantize_rules(rule, good, bad):
    pair(rule, lambda change: quantize(**change), (good,), (bad,))


def matmul(
    depth=64, columns=4, width=6, first=E4M3, second=E4M3, dst=nl.float32, dst_shape=None,
    moving_depth=None, buffers=(P, S, S, S), scale=(nl.uint8, nl.uint8), rows=(None, None),
    widths=(None, None), **options,
):  # fmt: skip
    acc = nl.ndarray(dst_shape or (columns, width), dtype=dst, buffer=buffers[0])
    stationary = tile((depth, columns), first, buffers[1])
    moving = tile((moving_depth or depth, width), second, buffers[2])
    scales = [
        tile((rows[i] or depth, widths[i] or (columns, width)[i]), scale[i], buffers[3],
             1.0 if scale[i] == nl.float8_e8m0fnu else 127)
        for i in range(2)
    ]  # fmt: skip
    nisa.nc_matmul_mx(acc, stationary, moving, *scales, **options)  # rule


MATMUL = [
    ("mx-dtype", {"first": E2M1}, {"first": nl.float8_e4m3fn}),
    ("mx-dtype", {"second": E5M2}, {"second": nl.uint32}),
    ("mx-partitions", {"depth": 96}, {"depth": 80}),
    ("matmul-contraction", {}, {"moving_depth": 32}),
    ("mx-stationary-even", {"columns": 2}, {"columns": 3}),
    ("matmul-stationary-free", {"columns": 128}, {"columns": 130, "dst_shape": (128, 6)}),
    ("matmul-moving-free", {"width": 4096}, {"width": 4097, "dst_shape": (4, 4096)}),
    ("matmul-moving-free", {"width": 8192, "dst": BF16},
     {"width": 8193, "dst_shape": (4, 8192), "dst": BF16}),
    ("matmul-dst-dtype", {"dst": BF16}, {"dst": nl.float16}),
    ("matmul-dst-shape", {"dst_shape": (4, 2, 3)}, {"dst_shape": (4, 7)}),
    ("matmul-dst-buffer", {}, {"buffers": (S, S, S, S)}),
    ("buffer-sbuf", {}, {"buffers": (P, P, S, S)}),
    ("buffer-sbuf", {}, {"buffers": (P, S, P, S)}),
    ("buffer-sbuf", {}, {"buffers": (P, S, S, P)}),
    ("mx-scale-dtype", {"scale": (nl.float8_e8m0fnu, nl.uint8)}, {"scale": (nl.int32, nl.uint8)}),
    ("mx-scale-dtype", {"scale": (nl.uint8, nl.float8_e8m0fnu)}, {"scale": (nl.uint8, nl.int8)}),
    ("mx-scale-shape", {"rows": (36, 40)}, {"rows": (35, None)}),
    ("mx-scale-shape", {"rows": (36, 40)}, {"rows": (None, 65)}),
    ("mx-scale-shape", {"depth": 32, "rows": (4, 32)}, {"depth": 32, "rows": (4, 3)}),
    ("mx-scale-shape", {}, {"widths": (5, None)}),
    ("mx-scale-shape", {}, {"widths": (None, 5)}),
    ("matmul-accumulate", {"accumulate": False}, {"accumulate": 0}),
    ("psum-accumulate-unwritten", {"accumulate": None}, {"accumulate": True}),
    ("matmul-tile", {"tile_position": (64, 0), "tile_size": (64, 128), "rows": (36, 36)},
     {"tile_position": (64, 0), "tile_size": (32, 128)}),
    ("matmul-tile", {"tile_position": (0, 0), "tile_size": (64, 128)}, {"tile_size": (64, 128)}),
]  # fmt: skip


@pytest.mark.parametrize("rule, good, bad", MATMUL)
def test_matmul_rules(rule, good, bad):
    pair(rule, lambda change: matmul(**change), (good,), (bad,))


def test_both_need_gen4(on_target):
    for kernel in (quantize, matmul):
        simulate(kernel)()
        on_target("trn2")
        refused("target", kernel)
        on_target("trn3")


def test_results_of_a_matmul_have_places_of_their_own():
    def kernel(first, stride):
        acc = nl.ndarray((64, 8), dtype=nl.float32, buffer=P)
        w, scale = tile((32, 4), E4M3), tile((32, 4), nl.uint8, value=127)
        dst = acc.ap([[8, 4], [stride, 4]], offset=8 * first)
        nisa.nc_matmul_mx(dst, w, w, scale, scale)  # rule

    pair("matmul-dst-overlap", kernel, (0, 2), (0, 0))
    pair("matmul-dst-partition", kernel, (0, 2), (32, 2))


def test_free_dimensions_of_scales():
    def kernel(*free):
        src, dst = tile((32, 128), BF16, value=1.0), tile((32, 32), E4M3)
        scale = tile((32, 96), nl.uint8)
        nisa.quantize_mx(dst, src, scale.ap([[96, 32], *free]))  # rule

    apart = ((50, 2), (20, 2), (8, 2), (3, 2), (1, 2))
    pair("free-dims", kernel, (*apart[:3], (1, 4)), apart)


# Scales lie in the quadrant of their data, from partition 0, 4, 8 or 12 of it.


def placed(data, scale, count=32, height=4, row=None):
    """Scales from partition ``scale`` for data from partition ``data`` on, of full tiles."""
    rows, places = slice(data, data + count), slice(scale, scale + height)
    scales = tile((128, 4), nl.uint8, value=127)
    packed = tile((128, 4), E4M3)
    if row is None:
        src = tile((128, 16), BF16, value=1.0)
        nisa.quantize_mx(packed[rows], src[rows], scales[places])  # rule
    else:
        acc = nl.ndarray((4, 4), dtype=nl.float32, buffer=P)
        nisa.nc_matmul_mx(  # rule
            acc, packed[rows], packed[rows], scales[places], scales[places],
            tile_position=(row, 0), tile_size=(32 if count == 32 else 64, 128),
        )  # fmt: skip


@pytest.mark.parametrize("row", [None, 32])
@pytest.mark.parametrize("good, bad", [(32, 0), (36, 64), (40, 34), (44, 48)])
def test_place_of_scales(row, good, bad):
    kernel = lambda scale: placed(32, scale, row=row)  # noqa: E731
    pair("mx-scale-partition", kernel, good, bad)


@pytest.mark.parametrize("row", [None, 64])
def test_place_of_scales_over_two_quadrants(row):
    kernel = lambda scale, height: placed(64, scale, 64, height, row)  # noqa: E731
    pair("mx-scale-partition", kernel, (68, 60), (0, 64))
    pair("mx-scale-partition", kernel, (76, 36), (32, 36))


def test_small_tiles_go_where_their_data_is():
    """A whole scale tile of a few partitions may be placed in any quadrant, not at offset 4."""

    def kernel(scale_rows, first, address=None):
        src, dst = tile((128, 16), BF16, value=1.0), tile((128, 4), E4M3)
        scale = nl.ndarray((scale_rows, 4), dtype=nl.uint8, buffer=S, address=address)
        nisa.quantize_mx(dst[96:128], src[96:128], scale[first : first + 4])  # rule

    pair("mx-scale-partition", kernel, (4, 0), (65, 0))
    pair("mx-scale-partition", kernel, (16, 12), (20, 16))
    pair("mx-scale-partition", kernel, (4, 0, (96, 4096)), (4, 0, (64, 4096)))


def test_operands_and_scales_lie_at_the_row_of_the_matmul():
    def kernel(first, second, scale_at, row=64):
        w, scale = tile((128, 4), E4M3), tile((128, 4), nl.uint8, value=127)
        acc = nl.ndarray((4, 4), dtype=nl.float32, buffer=P)
        scales = scale[scale_at : scale_at + 4]
        operands = [
            tile((32, 4), E4M3) if start is None else w[start : start + 32]
            for start in (first, second)
        ]
        nisa.nc_matmul_mx(  # rule
            acc, *operands, scales, scales, tile_position=(row, 0), tile_size=(32, 128)
        )

    for good, bad in (((64, 64, 64), (32, 64, 64)), ((64, None, 64), (64, 32, 64))):
        pair("matmul-tile-position", kernel, good, bad)
    # A tile that may lie anywhere lies where the matmul uses it, and its scales beside it.
    pair("mx-scale-partition", kernel, (None, None, 64), (None, None, 32))


@pytest.mark.parametrize("missing", [None, "scale", "data"])
def test_reads_what_was_written(missing):
    """The four partitions a quadrant, and no others."""

    def kernel():
        w = nl.ndarray((64, 4), dtype=E4M3, buffer=S)
        scale = nl.ndarray((64, 4), dtype=nl.uint8, buffer=S)
        acc = nl.ndarray((4, 4), dtype=nl.float32, buffer=P)
        nisa.memset(w[0 : 32 if missing == "data" else 64], 0)
        nisa.memset(scale[0:4], 127)
        if missing != "scale":
            nisa.memset(scale[32:36], 127)
        nisa.nc_matmul_mx(acc, w, w, scale, scale)  # rule

    if missing is None:
        simulate(kernel)()
    else:
        assert isinstance(refused("uninitialized-read", kernel), NkiUninitializedRead)


def test_quantize_writes_four_partitions_a_quadrant():
    def kernel(last):
        src = tile((64, 16), BF16, value=1.0)
        dst = nl.ndarray((64, 4), dtype=E4M3, buffer=S)
        scale = nl.ndarray((64, 4), dtype=nl.uint8, buffer=S)
        nisa.quantize_mx(dst, src, scale)
        save(dst)
        return save(scale[32:last])

    np.testing.assert_array_equal(simulate(kernel)(36), np.full((4, 4), 127 - 7))
    refused("uninitialized-read", kernel, 37, line=None)


def test_engines():
    def kernel():
        quantize()
        matmul(rows=(36, 36), tile_position=(64, 0), tile_size=(64, 128))

    _, session = record(kernel)()
    first, second = (r for r in session.trace if "mx" in r.op)
    assert (first.engine, len(first.writes), len(first.reads)) == ("vector", 2, 1)
    assert (second.engine, len(second.reads), second.details["row"]) == ("tensor", 4, 64)
