"""What a profile is written to: a trace for Perfetto and a page."""

import json
import re
import sys

import pytest

import nki_emulator
from nki_emulator.timing import trust

from .kernels import products, profile, work, zeros


@pytest.fixture(scope="module")
def modelled():
    return profile(products, zeros(128, 512), 6, 2)


def test_perfetto(modelled, tmp_path):
    modelled.to_perfetto(tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text())
    events = trace["traceEvents"]
    tracks = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert list(tracks.values()) == ["tensor", "vector", "dma load", "dma store"]
    slices = [e for e in events if e["ph"] == "X"]
    assert len(slices) == modelled.instructions
    assert {tracks[e["tid"]] for e in slices} == set(tracks.values())
    first = next(e for e in slices if e["name"].startswith("nc_matmul"))
    assert re.fullmatch(r"nc_matmul kernels\.py:\d+", first["name"])
    assert "nc_matmul" in first["args"]["source"]
    last = max(e["ts"] + e["dur"] for e in slices)
    assert 0 < last * 1e3 <= modelled.total
    assert trace["otherData"]["note"] == modelled.claim
    assert modelled.claim in next(e for e in events if e["name"] == "process_name")["args"]["name"]


def test_page(modelled, tmp_path):
    modelled.to_html(tmp_path / "page.html", title="a <b> kernel")
    page = (tmp_path / "page.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "a &lt;b&gt; kernel" in page and "<b> kernel" not in page
    assert "modelled, not measured" in page and trust.COMMAND in page
    assert f"{modelled.total / 1e3:.1f} us" in page
    data = json.loads(re.search(r'<script type="application/json">(.*?)</script>', page)[1])
    assert len(data["events"]) == modelled.instructions
    assert data["tracks"] == ["tensor", "vector", "dma load", "dma store"]
    assert not re.search(r"https?://", page)


def test_a_closing_tag_in_the_source_does_not_end_the_script(tmp_path):
    def kernel(x):
        return work(x, 1)  # </script>

    profile(kernel, zeros(128, 64)).to_html(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text().count("</script>") == 2


def test_launches_inside_other_code():
    def model(x):
        first = nki_emulator.simulate(work)(x, 2)
        return nki_emulator.simulate(work)(first, 5)

    with nki_emulator.profiling() as found:
        model(zeros(128, 64))
    assert [p.kernel for p in found] == ["work", "work"]
    assert found[0].total < found[1].total
    model(zeros(128, 64))
    assert len(found) == 2, "outside the block nothing is recorded"


def test_a_profile_is_readable(modelled):
    text = repr(modelled)
    assert modelled.claim in text and f"{modelled.total / 1e3:.1f} us" in text
    assert sys.getsizeof(text) < 500


def test_the_claim_is_that_of_the_regime():
    assert trust.regime({"tensor": 60, "dma": 30}, 100) == "matmul"
    assert trust.regime({"tensor": 30, "dma": 60}, 100) == "dma"
    assert trust.regime({"tensor": 30, "scalar": 60}, 100) == "vector"
    assert trust.regime({"tensor": 40, "dma": 49}, 100) == "small"
    assert "no published measurement of this regime" in trust.statement("sparse")
    for regime, figures in trust.errors().items():
        assert f"{figures['median']:.0%}" in trust.statement(regime)


def test_a_table_load_is_a_slice_of_its_own(tmp_path):
    def kernel(x):
        import nki.isa as nisa
        import nki.language as nl

        tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x)
        nisa.activation(dst=tile, op=nl.exp, data=tile)

    found = profile(kernel, zeros(128, 64))
    found.to_perfetto(tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text())
    (load,) = [one for one in trace["traceEvents"] if one["name"] == "table load"]
    assert (load["ts"], load["dur"]) == (0, 1.28)
    found.to_html(tmp_path / "page.html")
    assert "table load" in (tmp_path / "page.html").read_text()


def test_lines_add_up(modelled):
    assert sum(count for _, _, count, _, _ in modelled.lines) == modelled.instructions
    assert sum(time for *_, time, _ in modelled.lines) == pytest.approx(
        sum(event.end - event.start for event in modelled.events)
    )
    times = [time for *_, time, _ in modelled.lines]
    assert times == sorted(times, reverse=True)
