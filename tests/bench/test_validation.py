"""The timing model against published measurements."""

import json

import pytest

from bench.__main__ import main
from bench.validation import report
from bench.validation.rows import ATTENTION, DMA, MATMUL, PUBLISHED
from nki_emulator.timing import trust


@pytest.fixture(scope="module")
def found():
    return report.compare_all()


def errors(found, *regimes):
    return sorted(abs(one.error) for one in found if one.row.regime in regimes and not one.fitted)


def median(values):
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2


def test_no_row_is_dropped(found):
    assert [one.row for one in found] == PUBLISHED
    assert all(row.name in report.text(found) for row in PUBLISHED)


def test_products_and_transfers_within_fifteen_per_cent(found):
    assert len(errors(found, MATMUL, DMA)) >= 18
    assert median(errors(found, MATMUL, DMA)) <= 0.15
    assert median(errors(found, MATMUL)) <= 0.15
    assert median(errors(found, DMA)) <= 0.15


def test_long_attention_within_thirty_per_cent(found):
    long = [one for one in found if one.row.regime == ATTENTION]
    assert len(long) >= 6
    assert median(errors(long, ATTENTION)) <= 0.30


def test_the_errors_shown_with_modelled_figures_are_these(found):
    assert trust.errors() == report.medians(found)


def test_every_row_says_where_it_is_from():
    assert len({row.name for row in PUBLISHED}) == len(PUBLISHED)
    assert all(row.source and row.microseconds > 0 for row in PUBLISHED)


def test_fitted_rows_exist_and_do_not_count(found):
    for prefix in trust.fitted_on():
        assert any(row.name.startswith(prefix) for row in PUBLISHED), prefix
    fitted = [one for one in found if one.fitted]
    assert {one.row.name.split(",")[0] for one in fitted} == {"weights", "4096x8192x8192 bf16"}
    counted = sum(figures["rows"] for figures in report.medians(found).values())
    assert counted == len(found) - len(fitted)
    assert report.text(found).count(" *") == len(fitted)


def test_command(monkeypatch, tmp_path, capsys, found):
    monkeypatch.setattr(report, "compare_all", lambda progress=None: found[:3])
    assert main(["validate", "--json", str(tmp_path / "rows.json")]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("modelled against published measurements")
    assert "Fitted figures and the rows they were fitted on:" in printed
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert [row["kernel"] for row in rows] == [row.name for row in PUBLISHED[:3]]
    assert all(row["error"] == row["modelled_us"] / row["measured_us"] - 1 for row in rows)
