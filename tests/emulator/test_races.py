"""Races: two cores that touch the same bytes of HBM, at least one of them writing, unordered."""

from hypothesis import given, settings
from hypothesis import strategies as st

from .support import load, nisa, nki, nl, np, pair, pytest, refused, simulate, tile

BOTH = (0, 1)


def two(kernel):
    return nki.jit(kernel)[2]


def me():
    return nl.program_id(axis=0)


def touch(view, writes):
    """One DMA that writes or reads the view."""
    t = tile(view.shape, view.dtype)
    if writes:
        nisa.dma_copy(dst=view, src=t)  # write
    else:
        nisa.dma_copy(dst=t, src=view)  # read


def each(tensor, first, second, accesses=(True, True)):
    """Program 0 touches tensor[first], program 1 touches tensor[second]."""
    touch(tensor[first if me() == 0 else second], accesses[me()])  # touch


def ready(shape=(8, 8), dtype=nl.float32):
    """A shared tensor that is written and ordered, so that everything may read it."""
    made = nl.ndarray(shape, dtype=dtype, buffer=nl.shared_hbm, name="made")
    rows = shape[0] // 2
    touch(made[me() * rows : (me() + 1) * rows], True)
    nisa.core_barrier(made, BOTH)
    return made


# Which pairs of accesses race.


@pytest.mark.parametrize("accesses", [(True, True), (True, False), (False, True)])
def test_a_write_and_any_other_access(accesses):
    def kernel(second):
        each(ready(), np.s_[0:4], second, accesses)

    error = pair("hbm-race", two(kernel), np.s_[4:8], np.s_[3:5], line="# ")
    text = str(error)
    words = {True: ("writes", "wrote"), False: ("reads", "read")}
    assert f"program 1 {words[accesses[1]][0]} bytes 96..127 (element [3, 0]) of made" in text
    assert f"Program 0 {words[accesses[0]][1]} there at" in text
    # Both kernel lines, with their text.
    for writes in accesses:
        assert ("# write" if writes else "# read") in text
    assert text.count("test_races.py:") >= 3 and "nisa.core_barrier" in text


def test_reading_together_is_no_race():
    def kernel(x):
        each(ready(), np.s_[0:5], np.s_[2:8], (False, False))
        load(x)

    simulate(two(kernel))(np.zeros((4, 4), np.float32))


def test_a_race_is_an_error_whatever_the_values():
    """Both cores write the same zeros."""

    def kernel(rows):
        each(ready(), np.s_[0:4], np.s_[rows:8])

    pair("hbm-race", two(kernel), 4, 3, line="# write")


def test_one_core_may_touch_bytes_as_often_as_it_likes():
    def kernel():
        made = ready()
        for _ in range(3):
            for writes in (True, False, True):
                touch(made[4 * me() : 4 * me() + 4], writes)

    simulate(two(kernel))()


def test_a_single_core_never_races():
    def kernel():
        made = nl.ndarray((4, 4), dtype=nl.float32, buffer=nl.shared_hbm)
        for writes in (True, False, True):
            touch(made, writes)
        assert made.storage.sharing is None

    simulate(nki.jit(kernel)[1])()


def test_private_tensors_do_not_race():
    def kernel():
        mine = nl.ndarray((4, 4), dtype=nl.float32, buffer=nl.private_hbm)
        touch(mine, True)
        assert mine.storage.sharing is None

    simulate(two(kernel))()


# Elements, not bounding boxes.


@pytest.mark.parametrize(
    "good, bad",
    [
        ((np.s_[:, 0::2], np.s_[:, 1::2]), (np.s_[:, 0::2], np.s_[:, 0::3])),
        ((np.s_[0::2, :], np.s_[1::2, :]), (np.s_[0::2, :], np.s_[1::3, :])),
        ((np.s_[0:4, 0:4], np.s_[4:8, 4:8]), (np.s_[0:5, 0:5], np.s_[4:8, 4:8])),
        ((np.s_[0:4, 4:8], np.s_[0:8, 0:4]), (np.s_[0:4, 4:8], np.s_[0:8, 0:5])),
    ],
)
def test_strided_regions_race_element_by_element(good, bad):
    def kernel(first, second):
        each(ready(), first, second)

    pair("hbm-race", two(kernel), good, bad, line="# write")


def test_permuted_views_race_element_by_element():
    def kernel(column):
        made = ready()
        turned = made.permute((1, 0))
        view = made[:, 0:4] if me() == 0 else turned[column : column + 2, :]
        touch(view, True)

    error = pair("hbm-race", two(kernel), 4, 3, line="# write")
    assert "bytes 12..15 (element [0, 3], the first of 8 runs, 32 bytes in all)" in str(error)


def test_broadcast_reads():
    def kernel(row):
        made = ready()
        if me() == 0:
            touch(made[2:3, :], True)
        else:
            touch(made[row : row + 1, :].broadcast(0, 16), False)

    pair("hbm-race", two(kernel), 3, 2, line="# read")


def test_views_of_another_dtype_race_byte_by_byte():
    def kernel(column):
        made = ready()
        if me() == 0:
            touch(made.view(nl.uint8)[0:1, 5:7], True)
        else:
            touch(made[0:1, column : column + 1], True)

    error = pair("hbm-race", two(kernel), 2, 1, line="# write")
    assert "bytes 5..6 (element [0, 1])" in str(error)
    pair("hbm-race", two(kernel), 0, 1, line="# write")


def test_low_precision_bytes_count_their_real_size(monkeypatch):
    monkeypatch.setenv("NKI_PRECISE_FP", "0")

    def kernel(column):
        each(ready(dtype=nl.bfloat16), np.s_[0:1, 0:4], np.s_[0:1, column:8])

    error = pair("hbm-race", two(kernel), 4, 2, line="# write")
    assert "bytes 4..7 (element [0, 2])" in str(error)


slices = st.tuples(
    st.integers(0, 7), st.integers(1, 8), st.integers(1, 3)
).map(lambda t: slice(t[0], min(8, t[0] + t[1]), t[2]))  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(
    st.tuples(slices, slices), st.tuples(slices, slices), st.tuples(st.booleans(), st.booleans())
)
def test_races_are_found_exactly_where_regions_meet(first, second, accesses):
    """Against sets of element numbers made by NumPy."""
    numbers = np.arange(64).reshape(8, 8)
    meets = set(numbers[first].flat) & set(numbers[second].flat)

    def kernel():
        each(ready(), first, second, accesses)

    if meets and any(accesses):
        error = refused("hbm-race", two(kernel), line="# ")
        row, column = divmod(min(meets), 8)
        assert f"(element [{row}, {column}]" in str(error)
    else:
        simulate(two(kernel))()


# Barriers.


def write_then_read(x, which):
    """Program 0 writes a tensor, program 1 reads it after a barrier on ``which``."""
    data = nl.ndarray((8, 8), dtype=nl.float32, buffer=nl.shared_hbm)
    other = nl.ndarray((8, 8), dtype=nl.float32, buffer=nl.shared_hbm)
    if me() == 0:
        touch(data, True)
    if which == "exchange":
        nisa.sendrecv(tile((2, 2)), tile((2, 2)), 1 - me(), 1 - me(), 0)
    elif which != "none":
        views = {"all": data, "other": other, "rows": data[0:4, :], "argument": x}
        nisa.core_barrier(views[which], BOTH)
    if me() == 1:
        touch(data[0:4] if which == "rows" else data, False)


@pytest.mark.parametrize("bad", ["none", "other", "argument", "exchange"])
def test_only_a_barrier_on_the_tensor_orders_its_accesses(bad):
    x = np.zeros((2, 2), np.float32)
    error = pair("hbm-race", two(write_then_read), (x, "all"), (x, bad), line="# read")
    assert "a barrier on another tensor does not order them" in str(error)
    simulate(two(write_then_read))(x, "rows")


def test_a_barrier_on_a_view_orders_its_elements_only():
    def kernel(rows):
        data = nl.ndarray((8, 8), dtype=nl.float32, buffer=nl.shared_hbm)
        if me() == 0:
            touch(data, True)  # first
        nisa.core_barrier(data[0:4, :], BOTH)
        if me() == 1:
            touch(data[0:rows, :], False)

    error = pair("hbm-race", two(kernel), 4, 5, line="# read")
    assert "bytes 128..159 (element [4, 0])" in str(error)


def test_accesses_after_the_barrier_race_again():
    def kernel(again):
        data = ready()
        touch(data, False)
        if again:
            if me() == 1:
                touch(data[0:1], True)  # too early: the other core may still read
        nisa.core_barrier(data, BOTH)
        if me() == 1:
            touch(data, True)

    pair("hbm-race", two(kernel), False, True, line="# write")


def test_a_race_names_the_latest_line_that_conflicts():
    def kernel(stop):
        data = ready()
        if me() == 0:
            t = tile((8, 8))
            nisa.dma_copy(dst=data[0:1, :], src=t[0:1, :])
            nisa.dma_copy(dst=data[1:2, :], src=t[1:2, :])  # the write that races
            nisa.dma_copy(dst=t[1:2, :], src=data[1:2, :])
        elif not stop:
            touch(data[1:3, :], False)

    error = pair("hbm-race", two(kernel), True, False, line="# read")
    assert "# the write that races" in str(error)


def test_many_rounds():
    """Neighbours exchange through HBM, each round ordered by a barrier before and after."""

    def kernel(rounds):
        data = ready((2, 4))
        for _ in range(rounds):
            touch(data[1 - me() : 2 - me()], False)
            nisa.core_barrier(data, BOTH)
            touch(data[me() : me() + 1], True)
            nisa.core_barrier(data, BOTH)

    simulate(two(kernel))(5)


# Arguments.


def write_arguments(x, y, rows):
    each(x if me() == 0 else y, np.s_[0:4], np.s_[rows:8])


def test_an_argument_of_the_caller():
    x = np.zeros((8, 8), np.float32)
    error = pair("hbm-race", two(write_arguments), (x, x, 4), (x, x, 3), line="# write")
    assert "program 1 writes" in str(error)


@pytest.mark.parametrize("torch_too", [False, True])
def test_arguments_that_are_views_of_one_array(torch_too):
    """Two names for overlapping memory race like one."""
    base = np.zeros(100, np.float32)
    x, apart, overlapping = (base[at : at + 32].reshape(8, 4) for at in (0, 32, 30))
    if torch_too:
        torch = pytest.importorskip("torch")
        x, apart, overlapping = (torch.from_numpy(a) for a in (x, apart, overlapping))

    def kernel(x, y):
        touch(x if me() == 0 else y, True)

    error = pair("hbm-race", two(kernel), (x, apart), (x, overlapping), line="# write")
    assert "bytes 0..7 (element [0, 0]) of y" in str(error)


def test_views_of_one_array_in_different_dtypes():
    base = np.zeros(64, np.int8)
    x, y = base[0:33].reshape(33, 1), base[32:64].view(np.float32).reshape(8, 1)

    def kernel(x, y, column):
        touch(x[32:33] if me() == 0 else y[column : column + 1], True)

    error = pair("hbm-race", two(kernel), (x, y, 1), (x, y, 0), line="# write")
    assert "bytes 0..0 (element [0, 0]) of y" in str(error)


# Indices known at run time.


def gathered(x, index, scatter):
    """Program 0 writes rows 0..3 of x; program 1 gathers or scatters the rows of an index."""
    if me() == 0:
        touch(x[0:4], True)
        return
    rows = load(index)
    view = x.vector_select(0, rows)
    t = tile((index.shape[0], x.shape[1]))
    if scatter:
        nisa.dma_copy(dst=view, src=t)  # rule
    else:
        nisa.dma_copy(dst=t, src=view)  # rule


@pytest.mark.parametrize("scatter", [False, True])
def test_gathered_and_scattered_rows(scatter):
    good, bad = (np.array(rows, np.int32).reshape(3, 1) for rows in ([7, 5, 4], [7, 2, 5]))
    x = np.zeros((8, 6), np.float32)
    error = pair("hbm-race", two(gathered), (x, good, scatter), (x, bad, scatter))
    assert "bytes 48..71 (element [2, 0]) of x" in str(error)


def test_a_launch_leaves_no_trace_on_the_arguments():
    """The same arrays again, with the cores' parts swapped."""
    x = np.zeros((8, 8), np.float32)

    def kernel(x, swap):
        touch(x[4:8] if me() != swap else x[0:4], True)

    simulate(two(kernel))(x, 0)
    simulate(two(kernel))(x, 1)
