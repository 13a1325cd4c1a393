"""The benchmark of the emulator runs and prints its three figures; no time decides a test."""

import re

from bench import emulator
from bench.__main__ import main


def test_command(monkeypatch, capsys):
    monkeypatch.setattr(emulator, "ROUNDS", 1)
    monkeypatch.setattr(emulator, "REPEATS", 1)
    monkeypatch.setattr(emulator, "BLOCKS", 1)
    assert main(["emulator"]) == 0
    printed = capsys.readouterr().out
    rows = dict(re.findall(r"^(\S+) +([\d.]+) +[\d.]+$", printed, re.MULTILINE))
    assert {"nc_matmul", "activation", "dma_copy", "median"} <= set(rows)
    assert all(float(value) > 0 for value in rows.values())
    line = r"1 blocks, bfloat16: [\d.]+ s, \d+ instructions, \d+ a second, at most \d+%"
    assert re.search(line, printed)
