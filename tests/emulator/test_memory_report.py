"""The peak-usage report: numbers, the tiles at the peak with their lines, and its table."""

import dataclasses

from nki_emulator import NkiCapacityError, memory_report
from nki_emulator.report import NOTE, MemoryReport, MemoryUse, TileUse

from .support import load, nisa, nki, nl, np, pytest, save, tile

KIB = 1024


def kernel(x):
    weights = nl.ndarray((128, 256), dtype=nl.bfloat16, name="weights")  # weights
    nisa.memset(weights, value=0.0)
    for _ in range(3):
        t = load(x)
        del t
    wide = nl.ndarray((64, 1000), dtype=nl.float32)  # wide
    acc = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum, name="acc")  # acc
    del wide, acc
    small = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.psum)
    nisa.memset(small, value=1.0)
    return save(small)


X = np.zeros((128, 100), np.float32)


def test_peak_and_tiles():
    report = memory_report(kernel)(X)
    assert isinstance(report, MemoryReport)
    assert (report.kernel, report.target) == ("kernel", "trn2")
    (sbuf,), (psum,) = report.sbuf, report.psum
    assert (sbuf.memory, sbuf.program, sbuf.peak, sbuf.capacity) == (
        "SBUF", 0, 512 + 4000, 224 * KIB,
    )  # fmt: skip
    wide, weights = sbuf.tiles
    assert isinstance(sbuf, MemoryUse) and isinstance(wide, TileUse)
    assert (wide.name, wide.dtype, wide.shape, wide.bytes) == ("", "float32", (64, 1000), 4000)
    assert (weights.name, weights.dtype, weights.bytes) == ("weights", "bfloat16", 512)
    assert (weights.address, weights.partition, weights.partitions) == (0, 0, 128)
    assert "# wide" in wide.line.text and "# weights" in weights.line.text
    assert wide.line.file == __file__
    assert (psum.memory, psum.peak, psum.capacity) == ("PSUM", 2048, 16 * KIB)
    assert [t.name for t in psum.tiles] == ["acc"] and "# acc" in psum.tiles[0].line.text


def test_the_tiles_add_up_to_the_peak():
    sbuf = memory_report(kernel)(X).sbuf[0]
    assert sum(t.bytes for t in sbuf.tiles) == sbuf.peak


def test_the_table():
    lines = str(memory_report(kernel)(X)).splitlines()
    assert lines[0] == "kernel on trn2"
    assert lines[1] == (
        "SBUF, program 0: 4512 of 229376 bytes a partition (2 %), 2 tiles at the peak"
    )
    assert lines[2].split() == ["bytes", "address", "tile"]
    assert lines[3].startswith("       4000     512  float32[64, 1000] at ")
    assert lines[4].startswith("        512       0  weights bfloat16[128, 256] at ")
    assert "test_memory_report.py:" in lines[3]
    assert (
        lines[5] == "PSUM, program 0: 2048 of 16384 bytes a partition (12 %), 1 tile at the peak"
    )
    assert lines[-1] == NOTE and "not the compiler's" in NOTE


def test_a_kernel_without_tiles():
    report = memory_report(lambda: None)()
    assert report.sbuf[0].peak == 0 and report.sbuf[0].tiles == ()
    assert "SBUF, program 0: 0 of 229376" in str(report)


def test_both_programs_are_reported(on_target):
    def uneven():
        tile((1, 100 * (1 + nl.program_id(0))))

    on_target("trn3")
    report = memory_report(nki.jit(uneven)[2])()
    assert [use.peak for use in report.sbuf] == [400, 800]
    assert [use.program for use in report.sbuf] == [use.program for use in report.psum] == [0, 1]
    assert report.sbuf[1].capacity == 256 * KIB
    text = str(report)
    assert text.index("SBUF, program 0") < text.index("PSUM, program 0") < text.index(
        "SBUF, program 1"
    )  # fmt: skip


def test_addressed_tiles_show_their_place():
    def placed():
        kept = [nl.ndarray((32, 10), dtype=nl.float32, address=(64, 400), name="a")]
        kept.append(nl.ndarray((32, 10), dtype=nl.float32, address=(96, 400), name="b"))
        kept.append(nl.ndarray((128, 10), dtype=nl.float32, address=(0, 440), name="c"))

    (sbuf,) = memory_report(placed)().sbuf
    # a and b are on the same bytes of different partitions.
    assert sbuf.peak == 80
    assert [(t.name, t.partition, t.address) for t in sbuf.tiles] == [
        ("a", 64, 400), ("b", 96, 400), ("c", 0, 440),
    ]  # fmt: skip


def test_the_report_is_plain_data_and_keeps_nothing_alive():
    report = memory_report(kernel)(X)
    assert dataclasses.asdict(report)["sbuf"][0]["peak"] == report.sbuf[0].peak
    with pytest.raises(dataclasses.FrozenInstanceError):
        report.kernel = "other"
    assert report == memory_report(kernel)(X)


def test_an_overflow_is_still_an_error():
    def large():
        nl.ndarray((128, 225 * KIB), dtype=nl.uint8)

    with pytest.raises(NkiCapacityError, match="sbuf-full"):
        memory_report(large)()
