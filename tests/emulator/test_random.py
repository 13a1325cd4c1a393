"""Random numbers: the generator, its state and seeds, and the distributions made of it."""

from .numeric import FLOATS, INTEGERS, converted
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
    same_bits,
    save,
    simulate,
    tile,
    values,
)  # fmt: skip

P, S = nl.psum, nl.sbuf
F, I32, U32 = "float32", "int32", "uint32"
VECTOR, GPSIMD = nisa.engine.vector, nisa.engine.gpsimd
MASK = 2**32 - 1


def xorwow(state, count):
    """Marsaglia's xorwow, one number after the other; returns them and the state it ends in."""
    x, y, z, w, v, d = (int(word) for word in state)
    numbers = []
    for _ in range(count):
        t = x ^ (x >> 2)
        x, y, z, w = y, z, w, v
        v = (v ^ (v << 4) ^ t ^ (t << 1)) & MASK
        d = (d + 362437) & MASK
        numbers.append((v + d) & MASK)
    return numbers, [x, y, z, w, v, d]


def bits(shape, dtype=U32, engine=VECTOR, buffer=S):
    dst = nl.ndarray(shape, dtype=dtype, buffer=buffer)
    nisa.rng(dst, engine=engine)
    return dst


def state_of(engine, lanes=128, words=6):
    dst = nl.ndarray((lanes, words), dtype=U32)
    nisa.rand_get_state(dst, engine=engine)
    return dst


def seed_with(value, dtype=U32, buffer=S):
    nisa.set_rng_seed(tile((1, 1), dtype, buffer, value))


# The algorithm and its state.


def test_the_first_number_is_the_published_one():
    # The state that Marsaglia's paper starts with.
    assert xorwow((123456789, 362436069, 521288629, 88675123, 5783321, 6615241), 1)[0] == [
        246875399
    ]


@pytest.mark.parametrize("engine, words, generation", [(GPSIMD, 6, "trn2"), (GPSIMD, 6, "trn3"),
                                                       (VECTOR, 24, "trn3")])  # fmt: skip
@pytest.mark.parametrize("columns", [1, 3, 4, 5, 23])
def test_numbers_are_xorwow_from_the_state_that_was_set(
    on_target, engine, words, generation, columns
):
    on_target(generation)

    def kernel(seeds):
        nisa.rand_set_state(load(seeds), engine=engine)
        start = state_of(engine, 8, words)
        return (
            save(bits((8, columns), engine=engine)),
            save(start),
            save(state_of(engine, 8, words)),
        )

    seeds = values((8, words), U32, low=0, high=MASK)
    numbers, start, end = simulate(kernel)(seeds)
    same_bits(start, seeds)
    streams = words // 6
    steps = -(-columns // streams)
    for lane in range(8):
        drawn = [xorwow(seeds[lane, 6 * s : 6 * s + 6], steps) for s in range(streams)]
        expected = [drawn[i % streams][0][i // streams] for i in range(columns)]
        assert numbers[lane].tolist() == expected
        assert end[lane].tolist() == [word for _, after in drawn for word in after]


@pytest.mark.parametrize("engine, words", [(GPSIMD, 6), (VECTOR, 24)])
def test_a_saved_state_continues_the_sequence(on_target, engine, words):
    on_target("trn3")

    def kernel():
        bits((128, 10), engine=engine)
        saved = state_of(engine, words=words)
        first = save(bits((128, 17), engine=engine))
        nisa.rand_set_state(saved, engine=engine)
        return first, save(bits((128, 17), engine=engine)), save(bits((128, 17), engine=engine))

    first, again, later = simulate(kernel)()
    same_bits(first, again)
    assert not (again == later).any()


def test_a_state_belongs_to_lanes():
    def kernel(seeds):
        before = state_of(GPSIMD)
        nisa.rand_set_state(load(seeds)[32:64, :], engine=GPSIMD)
        changed = state_of(GPSIMD)
        # Numbers are drawn in the lanes of dst only.
        nisa.rng(tile((96, 5), U32)[64:96, :], engine=GPSIMD)
        return save(before), save(changed), save(state_of(GPSIMD))

    seeds = values((64, 6), U32, low=0, high=MASK)
    before, changed, after = simulate(kernel)(seeds)
    expected = before.copy()
    expected[32:64] = seeds[32:]
    same_bits(changed, expected)
    moved = (after != changed).any(axis=1)
    assert moved[64:96].all() and not moved[:64].any() and not moved[96:].any()
    # Equal states would give equal numbers; the lanes start with different ones.
    assert len({tuple(row) for row in before}) == 128


def test_a_state_can_be_read_into_psum_on_gen4(on_target):
    on_target("trn3")

    def kernel(seeds):
        nisa.rand_set_state(load(seeds), engine=VECTOR)
        dst = nl.ndarray((4, 24), dtype=U32, buffer=P)
        nisa.rand_get_state(dst, engine=VECTOR)
        return save(dst)

    seeds = values((4, 24), U32, low=0, high=MASK)
    same_bits(simulate(kernel)(seeds), seeds)


# Seeds.


@pytest.mark.parametrize("generation", ["trn1", "trn2", "trn3"])
@pytest.mark.parametrize("dtype, buffer", [(U32, S), (I32, S), (F, P)])
def test_the_same_seed_gives_the_same_numbers(on_target, generation, dtype, buffer):
    on_target(generation)

    def kernel():
        rows = []
        for value in (7, 8, 7):
            seed_with(value, dtype, buffer)
            rows.append(save(bits((128, 9))))
            rows.append(save(bits((128, 9))))
        return tuple(rows)

    a, a2, b, b2, again, again2 = simulate(kernel)()
    same_bits(a, again)
    same_bits(a2, again2)
    for other in (a2, b, b2):
        assert (a == other).mean() < 0.01


def test_a_seed_is_32_bits():
    def kernel(x):
        rows = []
        for i in range(3):
            nisa.set_rng_seed(load(x)[0:1, i : i + 1])
            rows.append(save(bits((2, 4))))
        return tuple(rows)

    first, second, third = simulate(kernel)(np.array([[-1, 1, -1]], np.int32))
    same_bits(first, third)
    assert not (first == second).any()
    one = np.array([[1.0, 2.0, 1.0]], np.float32)
    same_bits(simulate(kernel)(one)[0], simulate(kernel)(one.view(np.int32))[0])


def test_a_seed_is_for_the_vector_engine():
    def kernel(seed):
        if seed:
            seed_with(3)
        return save(bits((4, 6))), save(bits((4, 6), engine=GPSIMD))

    plain, seeded = simulate(kernel)(False), simulate(kernel)(True)
    same_bits(plain[1], seeded[1])
    assert not (plain[0] == seeded[0]).any()


def test_without_a_seed_every_launch_draws_the_same_and_engines_differ():
    def kernel():
        return save(bits((128, 6))), save(bits((128, 6), engine=GPSIMD))

    vector, gpsimd = simulate(kernel)()
    same_bits(vector, simulate(kernel)()[0])
    assert (vector == gpsimd).mean() < 0.01


# rng.


@pytest.mark.parametrize("engine", [VECTOR, GPSIMD])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_rng_keeps_the_least_significant_bits(dtype, engine):
    def kernel(dtype):
        return save(bits((128, 2, 33), dtype, engine))

    wide, narrow = simulate(kernel)(U32), simulate(kernel)(dtype)
    width = 8 * NUMPY[dtype]().itemsize
    unsigned = narrow.view(f"uint{width}").astype(np.uint64)
    np.testing.assert_array_equal(unsigned, wide.astype(np.uint64) % 2**width)


def test_rng_fills_views_and_psum():
    def kernel():
        whole, psum = tile((64, 12), U32), nl.ndarray((64, 4), dtype=U32, buffer=P)
        nisa.rng(whole[32:64, 0:12:3])
        nisa.rng(psum)
        return save(whole), save(psum)

    whole, psum = simulate(kernel)()
    mask = np.zeros(whole.shape, bool)
    mask[32:, ::3] = True
    assert (whole[~mask] == 0).all() and len(np.unique(whole[mask])) == 128
    assert len(np.unique(psum)) == psum.size


def test_the_bits_look_random():
    def kernel():
        return save(bits((128, 512)))

    numbers = simulate(kernel)()
    # 2**16 numbers of 2**32: about half a repetition is expected, and none of a whole row.
    assert numbers.size - len(np.unique(numbers)) <= 6
    assert len({row.tobytes() for row in numbers}) == 128
    # Each bit is set half of the time: five standard deviations of 2**16 tosses are 0.0098.
    ones = np.unpackbits(numbers.view(np.uint8)).reshape(-1, 32).mean(axis=0)
    assert np.abs(ones - 0.5).max() < 0.0098
    # Neither neighbours in a lane nor lanes side by side go together.
    scaled = numbers / 2**32 - 0.5
    for left, right in ((scaled[:, 1:], scaled[:, :-1]), (scaled[1:], scaled[:-1])):
        assert abs((left * right).mean()) * 12 < 5 / np.sqrt(left.size)


# rand2.

RAND2 = ("float8_e4m3", "float8_e5m2", "float16", "bfloat16", "float32", *INTEGERS)


def spread(dtype, low, high, shape=(128, 64), buffer=S):
    dst = nl.ndarray(shape, dtype=dtype, buffer=buffer)
    seed_with(5)
    nisa.rand2(dst, low, high)
    return save(dst)


@pytest.mark.parametrize("dtype", RAND2)
@pytest.mark.parametrize("buffer", [S, P])
def test_rand2_converts(on_target, dtype, buffer):
    on_target("trn3")
    exact = simulate(spread)(F, 0.0, 100.0)
    same_bits(simulate(spread)(dtype, 0.0, 100.0, (128, 64), buffer), converted(exact, dtype))


def test_rand2_in_tfloat32(on_target):
    on_target("trn3")

    def kernel(dtype):
        dst, wide = nl.ndarray((8, 16), dtype=dtype), nl.ndarray((8, 16), dtype=F)
        seed_with(5)
        nisa.rand2(dst, 0.0, 1.0)
        nisa.tensor_copy(wide, dst)
        return save(wide)

    exact, short = simulate(kernel)(F), simulate(kernel)("tfloat32")
    assert (short.view(np.uint32) & 0x1FFF == 0).all() and (short != exact).any()
    np.testing.assert_allclose(short, exact, rtol=2.0**-11)


def test_rand2_is_uniform(on_target):
    on_target("trn3")
    x = simulate(spread)(F, -3.0, 5.0, (128, 512)).astype(np.float64)
    assert x.min() >= -3 and x.max() <= 5
    # Mean and variance of a uniform distribution, within five standard errors.
    assert abs(x.mean() - 1) < 5 * 8 / np.sqrt(12 * x.size)
    assert abs(x.var() - 64 / 12) < 5 * 64 * np.sqrt(1 / 180 / x.size)
    # 16 bins of 4096 expected: chi square with 15 degrees of freedom, 1e-5 tail at 48.
    counts, _ = np.histogram(x, bins=16, range=(-3, 5))
    assert ((counts - 4096) ** 2 / 4096).sum() < 48


def test_rand2_with_bounds_by_partition(on_target):
    on_target("trn3")

    def kernel(low, high):
        dst = tile((64, 3, 40))
        nisa.rand2(dst[32:64, 1:3, :], load(low), load(high))
        return save(dst)

    low = values((32, 1)) * 10
    high = low + np.abs(values((32, 1), seed=1)) + 0.5
    got = simulate(kernel)(low, high)
    inside = got[32:, 1:].reshape(32, -1)
    assert (inside >= low).all() and (inside <= high).all()
    reach = (inside.max(axis=1) - inside.min(axis=1)) / (high - low)[:, 0]
    assert reach.min() > 0.85
    assert (got[:32] == 0).all() and (got[32:, 0] == 0).all()


def test_rand2_over_all_of_float32(on_target):
    on_target("trn3")
    largest = float(np.finfo(np.float32).max)
    x = simulate(spread)(F, -largest, largest)
    assert np.isfinite(x).all() and (x < 0).any() and (x > 0).any()


# dropout.


def dropped(x, prob, seed=1):
    t = load(x)
    dst = nl.ndarray(x.shape, dtype=x.dtype)
    seed_with(seed)
    nisa.dropout(dst, t, prob if isinstance(prob, float) else load(prob))
    return save(dst)


@pytest.mark.parametrize("dtype", (*FLOATS, *INTEGERS))
def test_dropout(dtype):
    x = np.full((128, 64), 3, NUMPY[dtype])
    assert (simulate(dropped)(x, 1.0) == 0).all()
    same_bits(simulate(dropped)(x, 0.0), x)
    got = simulate(dropped)(x, 0.25)
    # Nothing is rescaled, and which elements go does not depend on the dtype.
    assert set(got.astype(np.float32).reshape(-1)) == {0.0, 3.0}
    same_bits(got == 0, simulate(dropped)(np.ones((128, 64), np.float32), 0.25) == 0)


def test_dropout_keeps_bits():
    x = np.full((128, 8), 0x7F812345, np.uint32).view(np.float32)
    kept = simulate(dropped)(x, 0.5).view(np.uint32)
    assert set(kept.reshape(-1)) == {0, 0x7F812345}
    assert simulate(dropped)(np.ones((16, 8), np.bool_), 0.5).any()


@pytest.mark.parametrize("prob", [0.1, 0.5, 0.9])
def test_dropout_drops_as_often_as_asked(prob):
    gone = simulate(dropped)(np.ones((128, 512), np.float32), prob) == 0
    assert abs(gone.mean() - prob) < 5 * np.sqrt(prob * (1 - prob) / gone.size)
    other = simulate(dropped)(np.ones((128, 512), np.float32), prob, 2) == 0
    both = (gone & other).mean()
    assert abs(both - prob**2) < 5 * np.sqrt(prob**2 * (1 - prob**2) / gone.size)


@pytest.mark.parametrize("dtype", FLOATS)
def test_dropout_with_a_probability_by_partition(dtype):
    prob = np.repeat([0, 0.5, 1, 0.25], 32).reshape(128, 1)
    x = np.ones((128, 400), np.float32)
    kept = simulate(dropped)(x, prob.astype(NUMPY[dtype])).mean(axis=1)
    assert (kept[:32] == 1).all() and (kept[64:96] == 0).all()
    assert np.abs(kept - (1 - prob[:, 0])).max() < 0.15


def test_dropout_with_probability_zero_keeps_even_what_draws_zero(on_target):
    on_target("trn3")

    def kernel(state, prob):
        nisa.rand_set_state(load(state), engine=VECTOR)
        t = tile((1, 1), F, value=3.0)
        nisa.dropout(t, t, prob)
        return save(t)

    # A state of zeros whose counter steps to zero: the first number is 0.
    state = np.zeros((1, 24), np.uint32)
    state[0, 5] = 2**32 - 362437
    assert xorwow(state[0, :6], 1)[0] == [0]
    assert simulate(kernel)(state, 0.0) == 3 and simulate(kernel)(state, 1e-30) == 0


def test_dropout_on_views_in_place_and_in_psum():
    def kernel(x):
        t = load(x)
        view = t[32:64, 0:32:2]
        nisa.dropout(view, view, 0.5)
        psum = tile((16, 32), F, P, 2.0)
        nisa.dropout(psum, psum, 0.5)
        spread_out = nl.ndarray((16, 4, 8), dtype=F)
        nisa.dropout(spread_out, t[0:16, 0:1].broadcast(1, 32), 0.5)
        return save(t), save(psum), save(spread_out)

    x = np.abs(values((64, 32))) + 1
    t, psum, spread_out = simulate(kernel)(x)
    expected = x.copy()
    expected[32:, ::2][t[32:, ::2] == 0] = 0
    same_bits(t, expected)
    assert 0 < (t == 0).sum() < 32 * 16
    assert set(psum.reshape(-1)) == {0.0, 2.0}
    wide = np.broadcast_to(x[:16, :1, None], (16, 4, 8))
    assert ((spread_out == 0) | (spread_out == wide)).all() and 0 < (spread_out == 0).sum() < 512


# Rules.


def run_rng(dst=((8, 6), U32, S), engine=VECTOR):
    target = nl.ndarray(dst[0], dtype=dst[1], buffer=dst[2])
    nisa.rng(target, engine=engine)  # rule


@pytest.mark.parametrize(
    "rule, good, bad",
    [
        ("operand-dtype", {"dst": ((8, 6), "int8", S)}, {"dst": ((8, 6), F, S)}),
        ("operand-dtype", {"dst": ((8, 6), "uint8", S)}, {"dst": ((8, 6), "bool", S)}),
        ("buffer-sbuf", {"dst": ((8, 6), U32, P)}, {"dst": ((8, 6), U32, P), "engine": GPSIMD}),
        ("buffer-on-chip", {}, {"dst": ((8, 6), U32, nl.shared_hbm)}),
        ("enum", {}, {"engine": nisa.engine.scalar}),
        ("enum", {}, {"engine": nisa.engine.unknown}),
    ],
)
def test_rng_rules(rule, good, bad):
    pair(rule, lambda change: run_rng(**change), (good,), (bad,))


def test_rng_on_gpsimd_needs_v3(on_target):
    simulate(run_rng)(engine=GPSIMD)
    on_target("trn1")
    pair("target", lambda engine: run_rng(engine=engine), VECTOR, GPSIMD)


def run_seed(seeds=((1, 1), U32, S)):
    source = tile(*seeds)
    nisa.set_rng_seed(source)  # rule


@pytest.mark.parametrize(
    "rule, good, bad",
    [
        ("seed-shape", {}, {"seeds": ((1, 2), U32, S)}),
        ("seed-shape", {"seeds": ((1, 1), I32, P)}, {"seeds": ((2, 1), U32, S)}),
        ("operand-dtype", {}, {"seeds": ((1, 1), "uint16", S)}),
        ("operand-dtype", {"seeds": ((1, 1), F, S)}, {"seeds": ((1, 1), "float8_e5m2_x4", S)}),
    ],
)
def test_seed_rules(rule, good, bad):
    pair(rule, lambda change: run_seed(**change), (good,), (bad,))


def run_set(state=((8, 6), U32, S), engine=GPSIMD):
    source = tile(*state)
    nisa.rand_set_state(source, engine=engine)  # rule


def run_get(state=((8, 6), U32, S), engine=GPSIMD):
    target = nl.ndarray(state[0], dtype=state[1], buffer=state[2])
    nisa.rand_get_state(target, engine=engine)  # rule


BIG = ((8, 24), U32, S)


@pytest.mark.parametrize("function", [run_set, run_get])
@pytest.mark.parametrize(
    "rule, good, bad",
    [
        ("random-state", {}, {"state": ((8, 24), U32, S)}),
        ("random-state", {"state": ((128, 6), U32, S)}, {"state": ((8, 2, 3), U32, S)}),
        ("random-state", {"state": BIG, "engine": VECTOR}, {"engine": VECTOR}),
        ("operand-dtype", {}, {"state": ((8, 6), I32, S)}),
        ("buffer-sbuf", {}, {"state": ((8, 6), U32, P)}),
        ("enum", {"state": BIG, "engine": VECTOR}, {"engine": nisa.engine.scalar}),
    ],
)
def test_state_rules(on_target, function, rule, good, bad):
    on_target("trn3")
    pair(rule, lambda change: function(**change), (good,), (bad,))


def test_a_state_is_set_from_sbuf_only(on_target):
    on_target("trn3")
    simulate(run_get)(state=((8, 24), U32, P), engine=VECTOR)
    pair("buffer-sbuf", lambda buffer: run_set(((8, 24), U32, buffer), VECTOR), S, P)


@pytest.mark.parametrize("function", [run_set, run_get])
def test_states_by_generation(on_target, function):
    pair("target", lambda change: function(**change), ({},), ({"state": BIG, "engine": VECTOR},))
    on_target("trn1")
    refused("target", function)


def run_rand2(dst=((8, 6), F, S), low=0.0, high=1.0):
    target = nl.ndarray(dst[0], dtype=dst[1], buffer=dst[2])
    bounds = [tile(*one) if isinstance(one, tuple) else one for one in (low, high)]
    nisa.rand2(target, *bounds)  # rule


@pytest.mark.parametrize(
    "rule, good, bad",
    [
        ("operand-dtype", {"dst": ((8, 6), "tfloat32", S)}, {"dst": ((8, 6), "float8_e4m3fn", S)}),
        ("operand-dtype", {"dst": ((8, 6), "uint8", P)}, {"dst": ((8, 6), "bool", S)}),
        ("operand-dtype", {"low": ((8, 1), F, P, -1.0)}, {"low": ((8, 1), "bfloat16", S, -1.0)}),
        ("partition-count", {}, {"low": ((9, 1), F, S, -1.0)}),
        ("vector-operand", {}, {"high": ((8, 2), F, S, 2.0)}),
        ("operand-type", {"high": 3}, {"high": "3"}),
        ("random-range", {"low": 0.9}, {"low": 1.0}),
        ("random-range", {"high": ((8, 1), F, S, 1.0)}, {"high": ((8, 1), F, S, 0.0)}),
        ("random-range", {}, {"high": np.inf}),
        ("random-range", {}, {"low": np.nan}),
    ],
)
def test_rand2_rules(on_target, rule, good, bad):
    on_target("trn3")
    pair(rule, lambda change: run_rand2(**change), (good,), (bad,))


def test_rand2_needs_v4(on_target):
    refused("target", run_rand2)
    on_target("trn3")
    simulate(run_rand2)()


def run_dropout(dst=((8, 6), F, S), data=((8, 6), F, S), prob=0.5):
    target, source = tile(*dst), tile(*data)
    chance = tile(*prob) if isinstance(prob, tuple) else prob
    nisa.dropout(target, source, chance)  # rule


def both(dtype):
    return {"dst": ((8, 6), dtype, S), "data": ((8, 6), dtype, S)}


@pytest.mark.parametrize(
    "rule, good, bad",
    [
        ("same-dtype", {}, {"dst": ((8, 6), "bfloat16", S)}),
        ("free-size", {"dst": ((8, 2, 3), F, S)}, {"dst": ((8, 5), F, S)}),
        ("partition-count", {}, {"data": ((9, 6), F, S)}),
        ("operand-dtype", {}, both("float8_e5m2_x4")),
        ("operand-dtype", {}, both("float8_e8m0fnu")),
        ("operand-dtype", {"prob": ((8, 1), "bfloat16", S)}, {"prob": ((8, 1), I32, S)}),
        ("operand-dtype", {**both(I32), "prob": ((8, 1), F, P)},
         {**both(I32), "prob": ((8, 1), "bfloat16", S)}),
        ("vector-operand", {"prob": ((8, 1), F, S)}, {"prob": ((8, 6), F, S)}),
        ("probability", {"prob": 1}, {"prob": 1.5}),
        ("probability", {"prob": 0.0}, {"prob": -0.1}),
        ("probability", {"prob": ((8, 1), F, S, 1.0)}, {"prob": ((8, 1), F, S, 2.0)}),
        ("probability", {}, {"prob": np.nan}),
        ("operand-type", {"prob": np.float32(0.5)}, {"prob": None}),
        ("buffer-on-chip", {}, {"dst": ((8, 6), F, nl.shared_hbm)}),
    ],
)  # fmt: skip
def test_dropout_rules(rule, good, bad):
    def kernel(change):
        if "dst" in change and change["dst"][2] is nl.shared_hbm:
            shape, dtype, buffer = change["dst"]
            target = nl.ndarray(shape, dtype=dtype, buffer=buffer)
            nisa.dropout(target, tile((8, 6)), 0.5)  # rule
        else:
            run_dropout(**change)

    pair(rule, kernel, (good,), (bad,))


def test_a_seed_must_have_been_written():
    def kernel(written):
        seeds = nl.ndarray((1, 1), dtype=U32)
        if written:
            nisa.memset(seeds, 1)
        nisa.set_rng_seed(seeds)  # rule

    pair("uninitialized-read", kernel, True, False)


def test_relaxed_precision_drops_the_same_elements(monkeypatch):
    x = np.ones((16, 32), ml_dtypes.bfloat16)
    exact = simulate(dropped)(x, 0.5)
    monkeypatch.setenv("NKI_PRECISE_FP", "0")
    same_bits(np.asarray(simulate(dropped)(x, 0.5)).astype(F), exact.astype(F))
