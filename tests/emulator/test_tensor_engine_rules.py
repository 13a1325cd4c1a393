"""nc_matmul: every operand rule, broken and just obeyed."""

from .support import nisa, nl, np, pair, pytest, refused, simulate, tile

P, S = nl.psum, nl.sbuf
DOUBLE = nisa.matmul_perf_mode.double_row
FP8, OCP, BF16 = "float8_e4m3", "float8_e4m3fn", "bfloat16"


def plain(
    depth=32, columns=16, width=24, first="float32", second="float32", dst="float32",
    dst_shape=None, buffers=(P, S, S), moving_depth=None, middle=(), **options,
):  # fmt: skip
    """A legal matmul with what a case changes; `middle` goes between K and the free size."""
    dst_tile = nl.ndarray(dst_shape or (columns, width), dtype=dst, buffer=buffers[0])
    stationary = tile((depth, *middle, columns), first, buffers[1])
    moving = tile((moving_depth or depth, *middle, width), second, buffers[2])
    nisa.nc_matmul(dst_tile, stationary, moving, **options)  # rule


def case(**changes):
    return lambda: plain(**changes)


def run_case(change):
    change()


TILE = {"tile_position": (0, 0), "tile_size": (32, 128)}
PAIR = {"first": FP8, "second": FP8, "middle": (2,), "perf_mode": DOUBLE}
RULES = [
    ("matmul-moving-free", {"width": 512}, {"width": 513, "dst_shape": (16, 512)}),
    ("matmul-stationary-free", {"columns": 128}, {"columns": 129, "dst_shape": (128, 24)}),
    ("matmul-contraction", {"moving_depth": 32}, {"moving_depth": 31}),
    ("matmul-dst-buffer", {}, {"buffers": (S, S, S)}),
    ("buffer-sbuf", {}, {"buffers": (P, P, S)}),
    ("buffer-sbuf", {}, {"buffers": (P, S, P)}),
    ("matmul-dst-dtype", {}, {"dst": BF16, "first": BF16, "second": BF16}),
    ("matmul-dst-dtype", {}, {"dst": "float16"}),
    ("matmul-dtype", {"first": BF16, "second": BF16}, {"first": "int32"}),
    ("matmul-dtype", {"first": BF16, "second": "float8_e5m2"}, {"first": BF16, "second": OCP}),
    ("matmul-dtype", {"first": FP8, "second": FP8}, {"first": FP8, "second": "float8_e4m3fn_x4"}),
    ("matmul-dtype", {"first": FP8, "second": FP8}, {"first": FP8, "second": "float8_e8m0fnu"}),
    ("matmul-dtype-mix", {"first": "tfloat32"}, {"first": BF16}),
    ("matmul-dtype-mix", {"second": "tfloat32"}, {"second": "float16"}),
    ("matmul-dtype-mix", {"first": FP8, "second": BF16}, {"first": FP8, "second": "tfloat32"}),
    ("matmul-dst-shape", {}, {"dst_shape": (16, 25)}),
    ("matmul-dst-shape", {"dst_shape": (16, 4, 6)}, {"dst_shape": (24, 16)}),
    ("matmul-dst-shape", {"dst_shape": (16, 24)}, {"dst_shape": (15, 24)}),
    ("matmul-dst-shape", {"dst_shape": (16, 24)}, {"columns": 15, "dst_shape": (16, 24)}),
    ("matmul-dst-shape", PAIR, {**PAIR, "perf_mode": nisa.matmul_perf_mode.none}),
    ("matmul-accumulate", {"accumulate": False}, {"accumulate": 0}),
    ("matmul-accumulate", {"accumulate": np.False_}, {"accumulate": 1}),
    ("matmul-tile", TILE, {"tile_position": (0, 0)}),
    ("matmul-tile", TILE, {"tile_size": (32, 128)}),
    ("matmul-tile", TILE, {"tile_position": (0, 32), "tile_size": (32, 32)}),
    ("matmul-tile", TILE, {"tile_position": (0, 0), "tile_size": (48, 128)}),
    ("matmul-tile", TILE, {"tile_position": (0, 0), "tile_size": (32, 128, 1)}),
    ("matmul-tile", TILE, {"tile_position": (0.0, 0), "tile_size": (32, 128)}),
    ("matmul-tile", TILE, {"tile_position": 32, "tile_size": (32, 128)}),
    ("matmul-tile", {"tile_position": (32, 0), "tile_size": (32, 128)},
     {"tile_position": (32, 0), "tile_size": (64, 128)}),
    ("matmul-tile", {"tile_position": (96, 0), "tile_size": (32, 128)},
     {"tile_position": (128, 0), "tile_size": (32, 128)}),
    ("matmul-tile", {"tile_position": (0, 0), "tile_size": (128, 128)},
     {"tile_position": (-32, 0), "tile_size": (32, 128)}),
    ("matmul-tile", {"depth": 32, **TILE}, {"depth": 33, **TILE}),
    ("matmul-transpose", {}, {"width": 32, "is_transpose": True, "accumulate": True}),
    ("matmul-transpose", PAIR, {"width": 32, **PAIR, "is_transpose": True}),
    ("transpose-dtype", {"first": FP8, "second": FP8, "width": 32},
     {"first": FP8, "second": FP8, "width": 32, "is_transpose": True}),
    ("enum", {"perf_mode": nisa.matmul_perf_mode.none}, {"perf_mode": "double_row"}),
    ("matmul-double-row", PAIR, {"perf_mode": DOUBLE}),
    ("matmul-double-row", PAIR, {**PAIR, "middle": (3,)}),
    ("matmul-double-row", PAIR, {**PAIR, "middle": (), "columns": 2, "width": 2}),
    ("matmul-double-row", PAIR, {**PAIR, "second": BF16}),
    ("matmul-moving-free", {**PAIR, "width": 512}, {**PAIR, "width": 513, "dst_shape": (16, 512)}),
    ("matmul-stationary-free", {**PAIR, "columns": 128},
     {**PAIR, "columns": 129, "dst_shape": (128, 24)}),
]  # fmt: skip


@pytest.mark.parametrize("rule, good, bad", RULES)
def test_matmul_rules(rule, good, bad):
    pair(rule, run_case, case(**good), case(**bad))


@pytest.mark.parametrize("rule, good, bad", RULES)
def test_a_check_that_passed_is_not_taken_for_another_call(rule, good, bad):
    """Checks of shapes are remembered; what differs between two calls must be checked again."""

    def kernel(first, second):
        plain(**first)
        plain(**second)

    pair(rule, kernel, (good, good), (good, bad))


def test_row_tiles_of_32_need_gen3(on_target):
    options = {"tile_position": (32, 0), "tile_size": (32, 128)}
    simulate(lambda: plain(**options))()
    on_target("trn1")
    refused("matmul-tile", lambda: plain(**options))
    simulate(lambda: plain(tile_position=(64, 0), tile_size=(64, 128)))()


def test_gen4_limits(on_target):
    on_target("trn3")
    pair("matmul-moving-free", run_case, case(width=4096),
         case(width=4097, dst_shape=(16, 4096)))  # fmt: skip
    half = {"dst": BF16, "first": BF16, "second": BF16}
    pair("matmul-moving-free", run_case, case(width=8192, **half),
         case(width=8193, dst_shape=(16, 8192), **half))  # fmt: skip
    pair("matmul-dst-dtype", run_case, case(dst=BF16), case(dst="float16"))
    simulate(run_case)(case(first=OCP, second=BF16))
    pair("matmul-dtype-mix", run_case, case(first=OCP, second="float8_e5m2"),
         case(first=OCP, second=FP8))  # fmt: skip
    options = {"middle": (2,), "perf_mode": DOUBLE}
    pair("matmul-dtype-mix", run_case, case(first=OCP, second="float8_e5m2", **options),
         case(first=FP8, second=OCP, **options))  # fmt: skip


def test_double_row_needs_gen3(on_target):
    simulate(lambda: plain(**PAIR))()
    on_target("trn1")
    refused("target", lambda: plain(**PAIR))


def test_hints_must_be_true():
    """A hint that float32 operands hold zeros and ones only; other dtypes ignore it."""

    def kernel(value, dtype="float32", **hint):
        acc = nl.ndarray((8, 8), dtype=nl.float32, buffer=P)
        ones, other = tile((8, 8), dtype, value=1.0), tile((8, 8), dtype, value=value)
        operands = (other, ones) if "is_stationary_onezero" in hint else (ones, other)
        nisa.nc_matmul(acc, *operands, **hint)  # rule

    for hint in ("is_stationary_onezero", "is_moving_onezero"):
        for value in (0.0, 1.0):
            simulate(kernel)(value, **{hint: True})
        simulate(kernel)(2.0, **{hint: False})
        simulate(kernel)(2.0, "bfloat16", **{hint: True})
        with_hint = lambda value, hint=hint: kernel(value, **{hint: True})  # noqa: E731
        pair("matmul-onezero", with_hint, 1.0, 2.0)


def test_results_do_not_share_a_place():
    def kernel(*free):
        acc = nl.ndarray((8, 16), dtype=nl.float32, buffer=P)
        w = tile((4, 16))
        nisa.nc_matmul(acc.ap([[16, 8], (4, 3), (2, 2)]), w[:, 0:8], w[:, 0:6])
        nisa.nc_matmul(acc.ap([[16, 8], *free]), w[:, 0:8], w[:, 0:6])  # rule

    # (stride, count) pairs of the 6 results of a partition.
    pair("matmul-dst-overlap", kernel, ((2, 3), (1, 2)), ((1, 3), (1, 2)))
    pair("matmul-dst-overlap", kernel, ((3, 2), (2, 3)), ((0, 6),))


# Where operands lie: partition p feeds row p of the array.


def at_partition(start, count, height, position=(), size=(), address=None):
    w = nl.ndarray((height, 16), dtype=nl.float32, address=address and (address, 0))
    x = nl.ndarray((height, 16), dtype=nl.float32, address=address and (address, 1024))
    for t in (w, x):
        nisa.memset(dst=t, value=1.0)
    acc = nl.ndarray((16, 16), dtype=nl.float32, buffer=P)
    rows = slice(start, start + count)
    nisa.nc_matmul(acc, w[rows], x[rows], tile_position=position, tile_size=size)  # rule


@pytest.mark.parametrize(
    "good, bad",
    [
        # The lower half of a full tile is rows 64..127.
        ((64, 64, 128, (64, 0), (64, 128)), (64, 64, 128)),
        ((64, 64, 128, (64, 0), (64, 128)), (64, 64, 128, (0, 0), (64, 128))),
        ((96, 32, 128, (96, 0), (32, 128)), (96, 32, 128, (64, 0), (32, 128))),
        ((0, 64, 128), (0, 64, 128, (64, 0), (64, 128))),
        # A whole tile of up to 64 partitions goes where the compiler puts it.
        ((0, 64, 64, (64, 0), (64, 128)), (0, 64, 65, (64, 0), (64, 128))),
        ((0, 32, 32, (96, 0), (32, 128)), (32, 16, 48)),
        # A given address fixes it.
        ((0, 32, 32, (32, 0), (32, 128), 32), (0, 32, 32, (64, 0), (32, 128), 32)),
    ],
)
def test_operands_start_at_the_row_of_the_tile(good, bad):
    pair("matmul-tile-position", at_partition, good, bad)


def test_both_operands_are_looked_at():
    def kernel(first, second):
        w = tile((128, 16))
        acc = nl.ndarray((16, 16), dtype=nl.float32, buffer=P)
        nisa.nc_matmul(  # rule
            acc, w[first : first + 32], w[second : second + 32], tile_position=(32, 0),
            tile_size=(32, 128),
        )  # fmt: skip

    pair("matmul-tile-position", kernel, (32, 32), (32, 64))
    pair("matmul-tile-position", kernel, (32, 32), (0, 32))


def test_results_leave_at_partition_zero():
    def kernel(first):
        acc = nl.ndarray((64, 16), dtype=nl.float32, buffer=P)
        w = tile((32, 32))
        nisa.nc_matmul(acc[first : first + 32], w, w[:, 0:16])  # rule

    pair("matmul-dst-partition", kernel, 0, 32)
