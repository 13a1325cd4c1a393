"""migration/index.rst: what each version changed, as NKI 0.6 has it.

Loops (0.5 to 0.6) are in test_doc_examples_loops.py, run-time addresses in ..._patterns.py.
"""

import math

import pytest

from .support import (
    load,
    nisa,
    nki,
    nl,
    np,
    pair,
    pair_of_calls,
    refused,
    same_bits,
    save,
    simulate,
    tile,
    values,
)  # fmt: skip

# 0.4 to 0.5.


def test_rsqrt_of_psum():
    """Section "nki.language.rsqrt": not from PSUM; nisa.activation is the way."""

    def kernel(buffer):
        t = tile((4, 4), value=4.0, buffer=buffer)
        out = nl.ndarray((4, 4), dtype=nl.float32)
        nisa.activation(dst=out, op=nl.rsqrt, data=t)
        nl.rsqrt(t)  # rule
        return save(out)

    pair("rsqrt-psum", kernel, nl.sbuf, nl.psum)


def test_reshapes_keep_their_elements():
    """Section "nki.language.NkiTensor.reshape": the element count is validated."""

    def kernel(size):
        tile((8, 12)).reshape((8, 3, size))  # rule

    pair("reshape", kernel, 4, 5)


# 0.3 to 0.4.


def test_the_rank_of_a_transposed_tensor():
    """Section "dst shape and rank now enforced exactly", with both ways to migrate."""

    def kernel(source, target, axes):
        nisa.dma_transpose(
            dst=nl.ndarray(target, dtype=nl.bfloat16), src=tile(source, nl.bfloat16), axes=axes
        )  # rule

    four, three = (3, 1, 2, 0), (2, 1, 0)
    simulate(kernel)((16, 1, 1, 8), (8, 1, 1, 16), four)
    simulate(kernel)((16, 1, 8), (8, 1, 16), three)
    refused(
        "dma-transpose-shape", kernel, (16, 1, 1, 8), (8, 1, 16), four, line="nisa.dma_transpose"
    )


@pytest.mark.parametrize("name", ["tensor_copy_dynamic_src", "tensor_copy_dynamic_dst"])
def test_removed_instructions(name):
    """Section "tensor_copy_dynamic_src / ..._dst": gone; tensor_copy with .ap instead."""
    with pytest.raises(AttributeError):
        getattr(nisa, name)

    @nki.jit
    def kernel(x, which):
        index = load(which)
        t, out = load(x), nl.ndarray((4, 3), dtype=nl.float32)
        if name.endswith("src"):
            source = t.ap([[12, 4], [1, 3]], scalar_offset=index, indirect_dim=1)
            nisa.tensor_copy(dst=out, src=source)
            return save(out)
        target = t.ap([[12, 4], [1, 3]], scalar_offset=index, indirect_dim=1)
        nisa.tensor_copy(dst=target, src=t[:, 0:3])
        return save(t)

    x = values((4, 12))
    expected = x[:, 5:8].copy() if name.endswith("src") else x.copy()
    if name.endswith("dst"):
        expected[:, 5:8] = x[:, 0:3]
    same_bits(kernel(x, np.array([[5]], np.int32)), expected)


# 0.2 to 0.3.


def test_types_of_parameters():
    """Section "nki.typing module": shapes as annotations change nothing."""
    import nki.typing as nt

    @nki.jit
    def kernel(x: nt.tensor[4, 6], scale: float = 2.0):
        return save(nl.multiply(load(x), scale))

    x = values((4, 6))
    same_bits(kernel(x), 2 * x)


def test_arguments_of_jit():
    """Section "nki.jit(platform_target=...)" is an error, "nki.jit(mode=...)" ignored."""

    def kernel(x):
        return save(load(x))

    x = values((2, 2))
    same_bits(nki.jit(kernel, mode="torchxla")(x), x)
    pair_of_calls(
        "jit-arguments", lambda: nki.jit(kernel), lambda: nki.jit(kernel, platform_target="trn2")
    )


def test_psum_goes_through_sbuf():
    """Section "nisa.dma_copy — reading from PSUM": tensor_copy first."""

    def kernel(buffer):
        out = nl.ndarray((4, 4), dtype=nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=tile((4, 4), buffer=buffer))  # rule

    pair("dma-psum", kernel, nl.sbuf, nl.psum)


def test_hardware_dge_does_not_cast():
    """Section "dge_mode type matching": view the source as the other type, or cast otherwise."""
    modes = nisa.dge_mode

    def kernel(view, mode):
        source, target = tile((4, 4), nl.uint16), nl.ndarray((4, 4), nl.float4_e2m1fn_x4)
        nisa.dma_copy(
            dst=target, src=source.view(target.dtype) if view else source, dge_mode=mode
        )  # rule

    simulate(kernel)(True, modes.hwdge)
    refused("dma-hwdge-dtype", kernel, False, modes.hwdge, line="nisa.dma_copy")

    def casting(mode):
        nisa.dma_copy(dst=nl.ndarray((4, 4), nl.float16), src=tile((4, 4)), dge_mode=mode)  # rule

    for good in (modes.swdge, modes.none):
        pair("dma-hwdge-dtype", casting, good, modes.hwdge)


REMOVED = [
    (lambda t: nisa.dma_copy(dst=t, src=t, dst_rmw_op=nl.add), "dst_rmw_op"),
    (lambda t: nisa.dma_copy(dst=t, src=t, unique_indices=True), "unique_indices"),
    (lambda t: nisa.register_move(nisa.register_alloc(), imm=42), "imm"),
    (lambda t: nisa.sendrecv(t, t, 1, 1, 0, use_gpsimd_dma=True), "use_gpsimd_dma"),
    (lambda t: nisa.tensor_copy(dst=t, src=t, mask=None), "mask"),
    (lambda t: nisa.tensor_copy(dst=t, src=t, dtype=nl.float32), "dtype"),
]


@pytest.mark.parametrize("call, keyword", REMOVED)
def test_removed_parameters(call, keyword):
    """Sections on dma_copy, register_move, sendrecv; "Deprecation of masking" (0.1 to 0.2)."""
    with pytest.raises(TypeError, match=keyword):
        simulate(lambda: call(tile((4, 4))))()


def test_a_sum_in_place_of_a_read_modify_write():
    """Section "dst_rmw_op and unique_indices removed": dma_compute, with dst among the sources.

    The section's first example lists the source alone; the stub then copies it. The emulator
    refuses one source, as the two documents give it different meanings.
    """

    def kernel(x, y, sources):
        t, other = load(x), load(y)
        nisa.dma_compute(t, [t, other] if sources == 2 else [other], reduce_op=nl.add)  # rule
        return save(t)

    x, y = values((4, 4)), values((4, 4), seed=1)
    same_bits(simulate(kernel)(x, y, 2), x + y)
    pair("dma-compute-sources", kernel, (x, y, 2), (x, y, 1))


def test_values_of_memset():
    """Section "nisa.memset — strict type matching": no float into integers."""

    def kernel(value):
        nisa.memset(dst=nl.ndarray((4, 4), dtype=nl.int32), value=value)  # rule

    pair("memset-type", kernel, 2, 2.0)


def test_axes_are_those_of_the_tile():
    """Section "nisa.tensor_reduce — axis handling fix": axis 1 of 4-D is not the last."""

    def kernel(axis):
        dst = nl.ndarray((4, 2, 3), dtype=nl.float32)
        nisa.tensor_reduce(dst=dst, op=nl.add, data=tile((4, 2, 3, 5)), axis=axis)  # rule

    pair("reduce-axis", kernel, 3, 1)


def test_new_orders_of_arguments():
    """Section "nisa.dma_compute — parameter reorder", "offset parameter moved"."""

    @nki.jit
    def kernel(x):
        t, total, masked = load(x), nl.ndarray(x.shape, x.dtype), nl.ndarray(x.shape, x.dtype)
        nisa.dma_compute(total, [t, t], nl.add, None, True)
        nisa.affine_select(masked, [[1, 4]], 0, t, 0.0, offset=-2)
        return save(total), save(masked)

    x = values((4, 4))
    total, masked = kernel(x)
    same_bits(total, 2 * x)
    same_bits(masked, np.where(np.arange(4) == 2, x, np.float32(0)))


def test_registers_from_constants_and_registers():
    """Section "imm renamed to src": the guide takes a register, the stub of 0.6 also a number."""

    @nki.jit
    def kernel():
        target, results = nisa.register_alloc(), []
        for source in (nisa.register_alloc(42), 43):
            nisa.register_move(target, source)
            t = nl.ndarray((1, 1), dtype=nl.int32)
            nisa.register_store(t, target)
            results.append(save(t))
        return tuple(results)

    assert [result.item() for result in kernel()] == [42, 43]


def test_where_results_are():
    """Section "Output tensors must use nl.shared_hbm"."""

    def kernel(buffer):
        out = nl.ndarray((2, 2), dtype=nl.float32, buffer=buffer)
        nisa.dma_copy(dst=out, src=tile((2, 2)))
        return out

    for bad in (nl.hbm, nl.private_hbm):
        pair("return-buffer", kernel, nl.shared_hbm, bad, line=None)


ENUMS = [
    (lambda t, v: nisa.dma_copy(dst=t, src=t, dge_mode=v), nisa.dge_mode.swdge, 1),
    (lambda t, v: nisa.dma_copy(dst=t, src=t, oob_mode=v), nisa.oob_mode.error, 0),
    (lambda t, v: nisa.tensor_copy(dst=t, src=t, engine=v), nisa.engine.vector, 5),
]


@pytest.mark.parametrize("call, good, bad", ENUMS)
def test_members_of_enumerations(call, good, bad):
    """Section "Integer enum constants no longer supported"."""

    def kernel(value):
        call(tile((4, 4)), value)  # rule

    assert good.value == bad
    pair("enum", kernel, good, bad, line="lambda t, v")


@pytest.mark.parametrize("name", ["sbuf", "psum", "hbm", "private_hbm", "shared_hbm"])
def test_buffers_are_objects(name):
    """Section "String buffer names no longer supported"; sbuf is the default."""

    def kernel(buffer):
        nl.ndarray((4, 4), dtype=nl.float16, buffer=buffer)  # rule

    pair("buffer", kernel, getattr(nl, name), name)
    simulate(lambda: nl.ndarray((4, 4), dtype=nl.float16).buffer == nl.sbuf or 1 / 0)


def test_lists_are_no_arguments():
    """Section "Replace list kernel arguments with tuples"."""

    def kernel(order, stride=(1, 1)):
        assert order == (0, 3, 1, 2) and stride == (1, 1)

    pair("argument-list", kernel, ((0, 3, 1, 2),), ([0, 3, 1, 2],), line=None)


def test_defaults():
    """Section "Parameter default value updates"."""

    @nki.jit
    def kernel():
        t = nl.ndarray((2, 3), dtype=nl.int32)
        nisa.iota(t, [[1, 3]])
        assert (nl.program_id(), nl.num_programs()) == (0, 1)
        assert nl.zeros((2, 2), nl.float32).buffer == nl.sbuf
        return save(t)

    same_bits(kernel(), np.tile(np.arange(3, dtype=np.int32), (2, 1)))


# 0.1 to 0.2.


def test_results_go_to_dst():
    """Section "All ISA functions require a destination parameter": first, no result."""

    def kernel(x):
        t = load(x)
        nisa.reciprocal(t[...], t)
        with pytest.raises(TypeError):
            nisa.reciprocal(data=t)
        return save(t)

    x = values((4, 4)) + 3
    same_bits(simulate(kernel)(x), np.float32(1) / x)


def test_python_loops_and_branches():
    """Section "Consistent control flow behavior": a counter, and a branch on the loop variable."""

    def kernel():
        count, last = 0, 0
        for i in nl.affine_range(8):
            count += 1
            last = 1 if i == 0 else 2
        assert (count, last) == (8, 2)

    with pytest.warns(DeprecationWarning):
        simulate(kernel)()


def test_bounds_in_place_of_masks():
    """Section "Deprecation of masking": 129 x 513 in tiles cut with min and slice; no clipping."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        for i in range(math.ceil(x.shape[0] / 128)):
            rows = slice(i * 128, min(x.shape[0], i * 128 + 128))
            for j in range(math.ceil(x.shape[1] / 512)):
                columns = slice(j * 512, min(x.shape[1], j * 512 + 512))
                nisa.dma_copy(dst=out[rows, columns], src=load(x[rows, columns]))
        return out

    x = values((129, 513))
    same_bits(kernel(x), x)

    def beyond(stop):
        tile((4, 513))[:, 512:stop]  # rule

    pair("out-of-bounds", beyond, 513, 1024)


def test_addresses():
    """Section "Improved allocation API": (partition, byte); PSUM tiles start on a bank."""

    def kernel(bank_offset):
        t = nl.ndarray((32, 8), nl.float32, nl.sbuf, "result", (32, 128))
        nisa.memset(t, 1.0)
        sums = nl.ndarray(
            (128, 1024), dtype=nl.bfloat16, buffer=nl.psum, address=(0, 3 * 2048 + bank_offset)
        )  # rule
        nisa.memset(sums, 0.0)
        return save(t)

    assert (simulate(kernel)(0) == 1).all()
    refused("psum-address", kernel, 1024, line="sums = nl.ndarray")


def test_rotating_buffers_by_address():
    """Section "Translate from the NKI 0.1.0 direct allocation API": a list of tiles, two places."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        size = x.shape[2] * 2
        tiles = [
            nl.ndarray(x.shape[1:], dtype=x.dtype, address=(0, 4096 + i % 2 * size))
            for i in range(x.shape[0])
        ]
        for i in range(x.shape[0]):
            nisa.dma_copy(dst=tiles[i], src=x[i])
            nisa.dma_copy(dst=out[i], src=tiles[i])
        return out

    x = values((5, 16, 32), "bfloat16")
    same_bits(kernel(x), x)


def test_a_rotated_buffer_that_is_read_too_late():
    """The same section: the tile two iterations later is in the same place."""

    def kernel(distance):
        tiles = [nl.ndarray((4, 8), nl.float32, address=(0, i % 2 * 32)) for i in range(4)]
        for i in range(4):
            nisa.memset(tiles[i], float(i))
            if i >= distance:
                nisa.tensor_copy(dst=tile((4, 8)), src=tiles[i - distance])  # rule

    pair("address-overlap", kernel, 1, 2)


def test_sub_kernels_are_functions():
    """Section "Remove nki.jit decorator on sub-kernels": decorated where it is called."""

    def doubled(x):
        return save(nl.multiply(load(x), 2.0))

    x = values((2, 2))
    same_bits(nki.jit(doubled)(x), 2 * x)


# Removing block dimensions.


@pytest.mark.parametrize("how", ["list", "free dimension", "inside the loop"])
def test_blocks(how):
    """Section "Removing block dimensions": a list, a free dimension, a tile an iteration."""

    @nki.jit
    def kernel(x):
        count, rows, columns = x.shape
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        if how == "list":
            blocks = [nl.ndarray((rows, columns), dtype=x.dtype) for _ in range(count)]
        elif how == "free dimension":
            whole = nl.ndarray((rows, count, columns), dtype=x.dtype)
            blocks = [whole[0:rows, i, 0:columns] for i in range(count)]
        else:
            for i in range(count):
                block = nl.load(x[i])
                nl.store(out[i], block)
            return out
        for i in range(count):
            nisa.dma_copy(dst=blocks[i], src=x[i])
        for i in range(count):
            nl.store(out[i], blocks[i])
        return out

    x = values((4, 8, 16), "bfloat16")
    same_bits(kernel(x), x)


def test_more_than_128_in_the_first_dimension():
    """Section "Removing block dimensions": dimension 0 is the partition, whatever it once meant."""

    def kernel(blocks):
        nl.ndarray((blocks, 128, 512), dtype=nl.bfloat16, buffer=nl.sbuf)  # rule

    pair("partitions", kernel, 1, 129)


def test_a_tile_is_not_assigned_to():
    """The same section assigns ``tile[...] = nl.load(...)``; instructions write to dst instead.

    "All ISA functions require a destination parameter" and the stub of __setitem__ give it no
    meaning, so it is refused.
    """

    def kernel(x, assigned):
        t = nl.ndarray(x.shape, dtype=x.dtype)
        if assigned:
            t[0:4, 0:4] = nl.load(x)  # rule
        nisa.dma_copy(dst=t[0:4, 0:4], src=x)

    x = values((4, 4))
    pair("tensor-assignment", kernel, (x, False), (x, True))
