"""Where wall-clock is measured: a neuron device if PyTorch has one, else this CPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from bench.timing import nothing_to_wait_for


@dataclass(frozen=True)
class Device:
    """A device's PyTorch name, what its table is called, and how to wait for its work."""

    name: str
    title: str
    synchronize: Callable[[], None] = nothing_to_wait_for


CPU = Device("cpu", "wall-clock on this CPU; says nothing about Trainium")


def find() -> Device:
    """The neuron device if there is one, else the CPU."""
    neuron = getattr(torch, "neuron", None)
    if neuron is not None and neuron.is_available():
        return Device("neuron", "wall-clock on this Trainium, synchronised", neuron.synchronize)
    return CPU
