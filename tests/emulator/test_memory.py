"""SBUF and PSUM are finite; a tile lives as long as Python holds a view of it."""

from nki_emulator import NkiCapacityError, record
from nki_emulator.session import Session
from nki_emulator.targets import GEN2, GEN3, GEN4

from .support import NUMPY, nisa, nl, np, pair, pytest, refused, simulate, tile

KIB = 1024
SBUF_BYTES = {"trn1": 192 * KIB, "trn2": 224 * KIB, "trn3": 256 * KIB}


def fill(bytes_a_partition):
    nl.ndarray((1, bytes_a_partition), dtype=nl.uint8, buffer=nl.sbuf)  # rule


@pytest.mark.parametrize("name", sorted(SBUF_BYTES))
def test_sbuf_holds_its_bytes_and_no_more(on_target, name):
    on_target(name)
    pair("sbuf-full", fill, SBUF_BYTES[name], SBUF_BYTES[name] + 4)


def test_low_precision_counts_its_real_size(monkeypatch):
    """With NKI_PRECISE_FP=0 a bfloat16 tile is stored as float32 and still takes two bytes."""
    monkeypatch.setenv("NKI_PRECISE_FP", "0")

    def kernel(elements):
        nl.ndarray((1, elements), dtype=nl.bfloat16, buffer=nl.sbuf)  # rule

    pair("sbuf-full", kernel, 112 * KIB, 112 * KIB + 2)


@pytest.mark.parametrize("dtype", sorted(NUMPY))
def test_element_sizes(dtype):
    session = Session()
    held = session.allocate((1, 64), dtype, nl.sbuf)
    assert session.sbuf.used == 64 * np.dtype(NUMPY[dtype]).itemsize
    del held
    assert session.sbuf.used == 0


def test_a_tile_is_free_when_its_last_view_dies():
    def kernel(keep):
        kept = []
        for _ in range(4):
            t = nl.ndarray((128, 100 * KIB), dtype=nl.uint8, buffer=nl.sbuf)  # rule
            if keep:
                kept.append(t[:, 0:1])
            del t

    pair("sbuf-full", kernel, False, True)


def test_tiles_of_a_psum_loop_are_freed_although_they_were_matmul_targets():
    def kernel():
        operand = tile((128, 128))
        for _ in range(20):
            acc = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)
            nisa.nc_matmul(dst=acc, stationary=operand, moving=operand)
            nisa.nc_matmul(dst=acc[:, 0:64], stationary=operand, moving=operand[:, 0:64])

    _, session = record(kernel)()
    assert session.psum.peak == 2 * 512 and session.psum.used == 0
    assert session.sbuf.peak == 512


def test_overflow_lists_live_tiles_largest_first_with_their_lines():
    def kernel():
        small = nl.ndarray((128, 10 * KIB), dtype=nl.uint8, name="small")
        large = nl.ndarray((128, 50 * KIB), dtype=nl.float16, name="large")
        nl.ndarray((128, 200 * KIB), dtype=nl.uint8, name="extra")  # rule
        return small, large

    error = refused("sbuf-full", kernel)
    assert isinstance(error, NkiCapacityError)
    text = str(error)
    assert text.index("102400 bytes") < text.index("10240 bytes")
    assert "large float16[128, 51200]" in text and text.count("test_memory.py:") >= 3
    assert "extra uint8[128, 204800]" in text and str(224 * KIB) in text


def test_freed_bytes_are_used_again_and_gaps_merge():
    session = Session()
    tiles = [session.allocate((1, 32 * KIB), nl.uint8, nl.sbuf) for _ in range(7)]
    addresses = [t.storage.address for t in tiles]
    assert addresses == [i * 32 * KIB for i in range(7)]
    del tiles[2]
    del tiles[1]
    merged = session.allocate((1, 64 * KIB), nl.uint8, nl.sbuf)
    assert merged.storage.address == 32 * KIB
    del merged
    del tiles[0]
    first = session.allocate((1, 96 * KIB), nl.uint8, nl.sbuf)
    assert first.storage.address == 0


def test_peak_is_remembered():
    def kernel():
        a = nl.ndarray((1, 1000), dtype=nl.uint8)
        del a
        nl.ndarray((1, 400), dtype=nl.uint8)

    _, session = record(kernel)()
    assert session.sbuf.peak == 1000


# PSUM banks.


def psum_tile(elements, dtype):
    nl.ndarray((128, elements), dtype=dtype, buffer=nl.psum)  # rule


def test_a_psum_tile_fits_in_a_bank():
    pair("psum-bank", psum_tile, (512, nl.float32), (513, nl.float32))
    pair("psum-bank", psum_tile, (1024, nl.bfloat16), (1025, nl.bfloat16))


def test_on_gen4_a_psum_tile_may_take_several_banks(on_target):
    on_target("trn3")
    pair("psum-full", psum_tile, (4096, nl.float32), (4097, nl.float32))


def test_psum_has_eight_banks():
    def kernel(count):
        kept = []
        for _ in range(count):
            kept.append(nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum))  # rule

    pair("psum-full", kernel, 8, 9)


def test_small_tiles_share_a_bank_and_never_cross_its_boundary():
    session = Session()
    tiles = [session.allocate((128, 300), nl.float32, nl.psum) for _ in range(2)]
    assert [t.storage.address for t in tiles] == [0, 2048]
    small = session.allocate((128, 212), nl.float32, nl.psum)
    assert small.storage.address == 1200
    assert session.allocate((128, 213), nl.float32, nl.psum).storage.address == 4096


# Explicit addresses.


def test_an_address_is_partition_and_byte():
    def kernel():
        t = nl.ndarray((32, 100), dtype=nl.bfloat16, address=(64, 400))
        assert (t.storage.partition, t.storage.address) == (64, 400)
        assert (t[:, 3:5].storage.address, t.start_partition) == (400, 64)
        nisa.memset(dst=t, value=1.0)

    simulate(kernel)()


def test_addresses_stay_within_the_memory():
    def kernel(address, buffer, dtype=nl.float32):
        nl.ndarray((64, 100), dtype=dtype, buffer=buffer, address=address)  # rule

    pair("address", kernel, ((64, 0), nl.sbuf), ((65, 0), nl.sbuf))
    pair("address", kernel, ((64, 0), nl.sbuf), ("top", nl.sbuf))
    pair("address", kernel, (None, nl.shared_hbm), ((0, 0), nl.shared_hbm))
    end = 224 * KIB - 400
    pair("sbuf-full", kernel, ((0, end), nl.sbuf), ((0, end + 4), nl.sbuf))
    pair("psum-full", kernel, ((0, 7 * 2048), nl.psum), ((0, 8 * 2048), nl.psum))
    pair("address-alignment", kernel, ((0, 8), nl.sbuf), ((0, 6), nl.sbuf))


def test_an_address_in_psum_is_the_start_of_a_bank(on_target):
    def kernel(byte):
        nl.ndarray((64, 100), dtype=nl.float32, buffer=nl.psum, address=(0, byte))  # rule

    pair("psum-address", kernel, 3 * 2048, 3 * 2048 + 400)
    on_target("trn3")
    pair("psum-address", kernel, 3 * 2048, 3 * 2048 + 400)


# Two tiles on the same bytes: use of one ends the use of the other.


def reused(first, second, shape=(64, 100), buffer=nl.sbuf, columns=slice(0, 100)):
    """The older tile is read after the newer one was written."""
    older = nl.ndarray(shape, dtype=nl.float32, buffer=buffer, address=first, name="older")
    nisa.memset(dst=older, value=1.0)
    newer = nl.ndarray(shape, dtype=nl.float32, buffer=buffer, address=second, name="newer")
    nisa.memset(dst=newer, value=2.0)  # takes the bytes
    nisa.tensor_copy(dst=tile(shape)[:, columns], src=older[:, columns])  # rule


@pytest.mark.parametrize(
    "good, bad",
    [
        (((0, 0), (0, 400)), ((0, 0), (0, 396))), (((0, 400), (0, 0)), ((0, 396), (0, 0))),
        (((0, 0), (64, 0)), ((0, 0), (0, 0))), (((64, 0), (0, 0)), ((64, 8), (64, 4))),
        (((0, 0), (64, 0), (32, 100)), ((64, 0), (64, 0), (32, 100))),
    ],
)  # fmt: skip
def test_reading_bytes_that_another_tile_has_overwritten(good, bad):
    error = pair("address-overlap", reused, good, bad)
    assert isinstance(error, NkiCapacityError)
    text = str(error)
    assert "newer float32" in text and "older float32" in text
    # The line that reads, the ones that allocated both tiles, and the one that overwrote.
    assert text.count("test_memory.py:") == 4


def test_only_the_bytes_that_were_overwritten_are_lost():
    # The tiles share the last column of the older and the first of the newer.
    pair(
        "address-overlap", reused,
        ((0, 0), (0, 396), (64, 100), nl.sbuf, slice(0, 99)),
        ((0, 0), (0, 396), (64, 100), nl.sbuf, slice(98, 100)),
    )  # fmt: skip


def test_psum_banks_are_reused_in_the_same_way():
    pair(
        "address-overlap", reused,
        ((0, 0), (0, 2048), (64, 100), nl.psum), ((0, 2048), (0, 2048), (64, 100), nl.psum),
    )  # fmt: skip


def test_accumulating_on_an_overwritten_psum_tile():
    def kernel(byte):
        operand = tile((64, 64))
        older, newer = (
            nl.ndarray((64, 64), dtype=nl.float32, buffer=nl.psum, address=(0, at))
            for at in (0, byte)
        )
        nisa.nc_matmul(dst=older, stationary=operand, moving=operand)
        nisa.nc_matmul(dst=newer, stationary=operand, moving=operand)
        nisa.nc_matmul(dst=older, stationary=operand, moving=operand, accumulate=True)  # rule

    pair("address-overlap", kernel, 2048, 0)


def test_stacked_scopes_reuse_bytes():
    """The allocator page of the documentation: an inner scope's bytes are used again while its
    names still exist."""

    def kernel(read_again):
        kept = tile((128, 256), nl.bfloat16)
        inner = [
            nl.ndarray((128, 256), dtype=nl.bfloat16, address=(0, 1024 + 512 * i)) for i in range(2)
        ]
        for t in inner:
            nisa.tensor_copy(dst=t, src=kept)
        later = nl.ndarray((128, 512), dtype=nl.bfloat16, address=(0, 1024))
        nisa.memset(dst=later, value=3.0)
        assert (later.array == 3).all()
        if read_again:
            nisa.tensor_copy(dst=kept, src=inner[1])  # rule

    pair("address-overlap", kernel, False, True)


def test_rotating_buffers():
    """Buffer i uses the bytes of buffer i - depth; reading one that has been rotated out fails."""

    def kernel(depth, back):
        buffers = []
        for i in range(6):
            buffers.append(nl.ndarray((8, 4), dtype=nl.float32, address=(0, i % depth * 16)))
            nisa.memset(dst=buffers[i], value=float(i))
            if i >= back:
                nisa.tensor_copy(dst=tile((8, 4)), src=buffers[i - back])  # rule

    pair("address-overlap", kernel, (3, 2), (3, 3))
    pair("address-overlap", kernel, (1, 0), (1, 1))


def test_writing_through_the_older_name_takes_the_bytes_back():
    def kernel(read_newer):
        older, newer = (nl.ndarray((8, 4), dtype=nl.float32, address=(0, 0)) for _ in range(2))
        nisa.memset(dst=newer, value=1.0)
        nisa.memset(dst=older[:, 1:3], value=2.0)
        nisa.tensor_copy(dst=tile((8, 2)), src=older[:, 1:3])
        nisa.tensor_copy(dst=tile((8, 1)), src=newer[:, 3:4])
        if read_newer:
            nisa.tensor_copy(dst=tile((8, 2)), src=newer[:, 0:2])  # rule

    error = pair("address-overlap", kernel, False, True)
    assert "read at [0, 1]" in str(error)


@pytest.mark.parametrize("precise", ["0", "1"])
def test_tiles_of_different_dtypes_lose_the_right_elements(monkeypatch, precise):
    monkeypatch.setenv("NKI_PRECISE_FP", precise)

    def kernel(first_half):
        older = nl.ndarray((4, 8), dtype=nl.bfloat16, address=(0, 0))  # bytes 0..15
        nisa.memset(dst=older, value=1.0)
        newer = nl.ndarray((4, 4), dtype=nl.float32, address=(0, 0))
        nisa.memset(dst=newer[:, 2:4], value=2.0)  # bytes 8..15
        part = older[:, 0:4] if first_half else older[:, 3:5]
        nisa.tensor_copy(dst=tile((4, part.shape[1]), nl.bfloat16), src=part)  # rule

    pair("address-overlap", kernel, True, False)


def test_views_of_another_size_follow_the_lost_bytes():
    def kernel(column):
        older = nl.ndarray((4, 4), dtype=nl.float32, address=(0, 0))
        nisa.memset(dst=older, value=1.0)
        newer = nl.ndarray((4, 2), dtype=nl.float32, address=(0, 0))
        nisa.memset(dst=newer.view(nl.uint8)[:, 5:6], value=2)
        nisa.tensor_copy(dst=tile((4, 1)), src=older[:, column : column + 1])  # rule

    pair("address-overlap", kernel, 0, 1)
    pair("address-overlap", kernel, 2, 1)


def test_an_overwritten_element_is_shown_as_such():
    def kernel():
        older, newer = (nl.ndarray((2, 2), dtype=nl.float32, address=(0, 0)) for _ in range(2))
        nisa.memset(dst=older, value=1.0)
        nisa.memset(dst=newer[:, 1:2], value=2.0)
        assert str(older).splitlines()[1:] == ["[[1.0 -]", " [1.0 -]]"]

    simulate(kernel)()


def test_addressed_and_placed_tiles_keep_clear_of_each_other():
    session = Session()
    fixed = session.allocate((64, 1000), nl.uint8, nl.sbuf, address=(0, 400))
    placed = session.allocate((128, 400), nl.uint8, nl.sbuf)
    beyond = session.allocate((128, 100), nl.uint8, nl.sbuf)
    assert (placed.storage.address, beyond.storage.address) == (0, 1400)
    del fixed
    assert session.allocate((128, 100), nl.uint8, nl.sbuf).storage.address == 400


def test_a_placed_tile_moves_out_of_the_way():
    session = Session()
    placed = session.allocate((128, 1000), nl.uint8, nl.sbuf)
    fixed = session.allocate((64, 100), nl.uint8, nl.sbuf, address=(0, 0))
    assert (fixed.storage.address, placed.storage.address) == (0, 100)
    assert session.sbuf.used == 1100
    del fixed
    assert session.sbuf.used == 1000

    def kernel(size):
        kept = [nl.ndarray((128, size), dtype=nl.uint8)]
        kept.append(nl.ndarray((1, KIB), dtype=nl.uint8, address=(0, 0)))  # rule

    pair("sbuf-full", kernel, 223 * KIB, 223 * KIB + 4)


def test_bytes_that_tiles_share_count_once():
    session = Session()
    kept = [session.allocate((64, 400), nl.uint8, nl.sbuf, address=(0, 0))]
    kept.append(session.allocate((64, 400), nl.uint8, nl.sbuf, address=(64, 0)))
    assert session.sbuf.used == 400
    kept.append(session.allocate((32, 400), nl.uint8, nl.sbuf, address=(32, 200)))
    assert session.sbuf.used == 600
    kept.append(session.allocate((128, 8), nl.uint8, nl.sbuf))
    assert session.sbuf.used == 608 == session.sbuf.peak
    kept.clear()
    assert session.sbuf.used == 0


# Targets.


def test_target_names(on_target):
    from nki_emulator.targets import selected_target

    assert selected_target() is GEN3
    for names, target in (("trn1 inf2 gen2", GEN2), ("trn2 gen3", GEN3), ("trn3 gen4", GEN4)):
        for name in names.split():
            on_target(name)
            assert selected_target() is target


def test_an_unknown_target_is_an_error_that_names_the_variable(on_target):
    def kernel():
        pass

    on_target("trn9")
    error = refused("target", kernel, line=None)
    assert "NEURON_PLATFORM_TARGET_OVERRIDE" in str(error) and "trn2" in str(error)


def test_tile_size_follows_the_target(on_target):
    assert nl.tile_size.sbuf_fmax_bytes == 224 * KIB
    on_target("trn3")
    size = nl.tile_size
    assert (size.sbuf_fmax_bytes, size.sbuf_fmax) == (256 * KIB, 64 * KIB)
    assert size.sbuf_size_bytes == 32 * KIB * KIB
    assert (size.pmax, size.psum_bank_fmax, size.psum_bank_fmax_bytes) == (128, 512, 2048)
    assert (size.gemm_stationary_fmax, size.gemm_moving_fmax, size.bn_stats_fmax) == (128, 512, 512)
    assert size.psum_num_banks == 8 and size.psum_min_align == size.sbuf_min_align == 4
    with pytest.warns(DeprecationWarning):
        assert size.total_available_sbuf_size == 256 * KIB
    with pytest.warns(DeprecationWarning):
        assert size.psum_fmax == 512


@pytest.mark.parametrize("target, banks", [("trn1", 8), ("trn2", 7), ("trn3", 7)])
def test_a_psum_bank_is_reserved_for_lowered_transposes(monkeypatch, on_target, target, banks):
    monkeypatch.setenv("NKI_DMA_TRANSPOSE_AS_PE_TRANSPOSE", "true")
    on_target(target)
    assert nl.tile_size.psum_num_banks == banks

    def kernel(count):
        kept = []
        for _ in range(count):
            kept.append(nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum))  # rule

    pair("psum-full", kernel, banks, banks + 1)


def test_generation_is_visible_to_the_kernel(on_target):
    def kernel(expected):
        assert nisa.get_nc_version() == expected and nisa.get_nc_sub_version() == 0

    simulate(kernel)(nisa.nc_version.gen3)
    on_target("gen4")
    simulate(kernel)(nisa.nc_version.gen4)
    assert nisa.get_nc_version() == nisa.nc_version.gen4
