"""guides/how-to-scheduling-apis.rst: edges between instructions, regions that keep their order."""

from nki_emulator import record

from .support import load, nisa, nki, nl, np, pair_of_calls, pytest, same_bits, save, values


@nki.jit()
def two_ways(x):
    """Two independent instructions of one tile, and one that needs both."""
    t = load(x)
    inverse, shifted = (nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf) for _ in range(2))
    nisa.reciprocal(dst=inverse, data=t, name="inverse")
    nisa.tensor_scalar(dst=shifted, data=t, op0=nl.add, operand0=1, name="shifted")
    nisa.tensor_tensor(dst=t, data1=inverse, data2=shifted, op=nl.add)
    return save(t)


@pytest.mark.parametrize(
    "edges", [[("shifted", "inverse")], [("shifted", ["inverse"])], [("inverse", "shifted")]]
)
def test_an_edge_between_independent_instructions(edges):
    """Section "Adding dependency edges": either order, by a name or a list of names."""
    x = values((8, 6)) + 4
    expected = np.float32(1) / x + (x + 1)
    same_bits(two_ways.with_schedule(edges)(x), expected)


def test_a_schedule_has_to_make_sense():
    """Section "Adding dependency edges": the compiler checks that the schedule makes sense."""
    x = values((8, 6)) + 4
    good = two_ways.with_schedule([("shifted", "inverse")])
    for rule, edges in (
        ("schedule-name", [("shifted", "reciprocal")]),
        ("schedule-order", [("shifted", "inverse"), ("inverse", "shifted")]),
    ):
        pair_of_calls(rule, lambda: good(x), lambda e=edges: two_ways.with_schedule(e)(x))


def test_a_chain_of_edges_made_by_a_program():
    """Section "Adding dependency edges", second example: a chain over named instructions."""

    @nki.jit
    def roots(a, b, c):
        tiles = [load(x) for x in (a, b, c)]
        results = []
        for i in range(len(tiles)):
            result = nl.ndarray(tiles[i].shape, tiles[i].dtype, buffer=nl.sbuf)
            nisa.activation(dst=result, data=tiles[i], op=nl.relu, name=f"step{i}")
            results.append(result)
        return tuple(save(result) for result in results)

    edges = [(f"step{i}", f"step{i - 1}") for i in range(1, 3)]
    inputs = [values((4, 5), seed=i) for i in range(3)]
    for got, x in zip(roots.with_schedule(edges)(*inputs), inputs):
        same_bits(got, np.maximum(x, 0))


def helper(i, tiles):
    nisa.tensor_scalar(dst=tiles[i], data=tiles[i], op0=nl.add, operand0=1.0, name=f"up{i}")


def test_a_region_covers_what_is_called_in_it():
    """Section "Using no_reorder": dynamically scoped, and instructions run in order."""

    @nki.jit
    def kernel(a, b):
        tiles = [load(x) for x in (a, b)]
        with nl.no_reorder():
            for i in range(2):
                helper(i, tiles)
        return tuple(save(t) for t in tiles)

    a, b = values((4, 5)), values((4, 5), seed=1)
    (first, second), session = record(kernel)(a, b)
    same_bits(first, a + 1)
    same_bits(second, b + 1)
    assert [r.name for r in session.trace if r.name] == ["up0", "up1"]


def test_the_results_of_the_guide_are_in_private_hbm():
    """The guide returns nl.hbm tensors; the migration guide says that such kernels do not compile.

    migration/index.rst, "Output tensors must use nl.shared_hbm".
    """

    def returning(buffer):
        out = nl.ndarray((2, 2), nl.float32, buffer=buffer)
        nisa.dma_copy(dst=out, src=nl.zeros((2, 2), nl.float32))
        return out

    pair_of_calls(
        "return-buffer",
        lambda: nki.simulate(returning)(nl.shared_hbm),
        lambda: nki.simulate(returning)(nl.hbm),
    )
