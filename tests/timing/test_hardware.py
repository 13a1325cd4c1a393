"""The hardware tables: every number says what it is and where it is from."""

import pickle

import pytest

from nki_emulator import targets
from nki_emulator.hardware import HARDWARE, TAGS, Figure
from nki_emulator.timing import trust


@pytest.mark.parametrize("generation", sorted(HARDWARE))
def test_every_figure_has_a_unit_a_tag_and_a_source(generation):
    figures = dict(HARDWARE[generation].figures())
    assert len(figures) > 30
    for name, figure in figures.items():
        assert figure.unit and figure.tag in TAGS and len(figure.source) >= 5, name


def test_a_figure_is_a_number():
    figure = Figure(2.5, "GHz", "documented", "a guide")
    assert figure * 2 == 5.0
    again = pickle.loads(pickle.dumps(figure))
    assert (again, again.unit, again.tag, again.source) == (2.5, "GHz", "documented", "a guide")
    with pytest.raises(ValueError, match="tag 'guessed'; allowed: documented"):
        Figure(1, "ns", "guessed", "nowhere")


@pytest.mark.parametrize("target", [targets.GEN2, targets.GEN3, targets.GEN4])
def test_the_emulator_takes_its_capacities_from_here(target):
    hardware = HARDWARE[target.generation]
    assert target.sbuf_partition_bytes == hardware.sbuf_partition
    assert target.psum_bank_bytes == hardware.psum_bank
    assert target.psum_banks == hardware.psum_banks
    assert target.partitions == hardware.partitions
    assert target.name == hardware.name


def test_documented_peaks():
    assert 2 * HARDWARE[3].matmul_peak == pytest.approx(78.64e3, rel=1e-3)  # GFLOP/s
    assert 2 * HARDWARE[2].matmul_peak == pytest.approx(91.75e3, rel=1e-3)


def test_fitted_figures_name_the_row_they_were_fitted_on():
    for _, _, figure in trust.fitted():
        assert "bench validate" in figure.source
