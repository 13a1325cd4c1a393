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


def two(first, second, buffer=nl.sbuf, shape=(64, 100)):
    kept = [nl.ndarray(shape, dtype=nl.float32, buffer=buffer, address=first)]
    kept.append(nl.ndarray(shape, dtype=nl.float32, buffer=buffer, address=second))  # rule


def test_overlapping_addresses_are_refused():
    pair("address-overlap", two, ((0, 0), (0, 400)), ((0, 0), (0, 396)))
    pair("address-overlap", two, ((0, 0), (64, 0)), ((0, 0), (32, 0)))


def test_an_address_may_be_used_again_when_its_tile_is_gone():
    def kernel(keep):
        kept = []
        for _ in range(2):
            t = nl.ndarray((64, 100), dtype=nl.float32, address=(0, 0))  # rule
            if keep:
                kept.append(t)
            del t

    pair("address-overlap", kernel, False, True)


def test_addressed_and_placed_tiles_keep_clear_of_each_other():
    session = Session()
    fixed = session.allocate((64, 1000), nl.uint8, nl.sbuf, address=(0, 400))
    placed = session.allocate((128, 400), nl.uint8, nl.sbuf)
    beyond = session.allocate((128, 100), nl.uint8, nl.sbuf)
    assert (placed.storage.address, beyond.storage.address) == (0, 1400)
    del fixed
    assert session.allocate((128, 100), nl.uint8, nl.sbuf).storage.address == 400


def test_addresses_stay_within_the_memory():
    def kernel(address, buffer, dtype=nl.float32):
        nl.ndarray((64, 100), dtype=dtype, buffer=buffer, address=address)  # rule

    pair("address", kernel, ((64, 0), nl.sbuf), ((65, 0), nl.sbuf))
    pair("address", kernel, ((64, 0), nl.sbuf), ("top", nl.sbuf))
    pair("address", kernel, (None, nl.shared_hbm), ((0, 0), nl.shared_hbm))
    end = 224 * KIB - 400
    pair("sbuf-full", kernel, ((0, end), nl.sbuf), ((0, end + 4), nl.sbuf))
    pair("psum-full", kernel, ((0, 16384 - 400), nl.psum), ((0, 16384), nl.psum))
    pair("psum-bank", kernel, ((0, 2048 - 400), nl.psum), ((0, 2048 - 396), nl.psum))
    pair("address-alignment", kernel, ((0, 8), nl.sbuf), ((0, 6), nl.sbuf))


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


def test_psum_banks_reserved_for_lowered_transposes(monkeypatch):
    monkeypatch.setenv("NKI_DMA_TRANSPOSE_AS_PE_TRANSPOSE", "1")
    assert nl.tile_size.psum_num_banks == 7


def test_generation_is_visible_to_the_kernel(on_target):
    def kernel(expected):
        assert nisa.get_nc_version() == expected and nisa.get_nc_sub_version() == 0

    simulate(kernel)(nisa.nc_version.gen3)
    on_target("gen4")
    simulate(kernel)(nisa.nc_version.gen4)
    assert nisa.get_nc_version() == nisa.nc_version.gen4
