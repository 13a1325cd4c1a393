"""Modelled times of launches: what the timing model says, added up. Nothing here is measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

import nki_emulator
from nki_emulator.timing import trust


@dataclass(frozen=True)
class Modelled:
    """Some launches: microseconds on the chip, launches excluded, and their fixed cost apart.

    `us` is the literal bound (buffers as written), `us_optimistic` the one with renamed buffers,
    `floor_us` the documented floor. `busy` gives each engine's share of `us`. `regime` names the
    published measurements that say how far the figures can be trusted.
    """

    us: float
    us_optimistic: float
    floor_us: float
    launches: int
    launch_us: float
    busy: dict[str, float]
    regime: str
    profiles: Sequence = field(repr=False)


def model(call: Callable[[], Tensor]) -> tuple[Tensor, Modelled]:
    """Runs `call`, which launches kernels under emulation; its result and its modelled cost."""
    with torch.no_grad(), nki_emulator.profiling() as profiles:
        result = call()
    return result, combine(profiles)


def combine(profiles: Sequence) -> Modelled:
    """One launch after the other, nothing overlapping between them."""
    total = sum(profile.total for profile in profiles)
    busy: dict[str, float] = {}
    for profile in profiles:
        for engine, time in profile.busy.items():
            busy[engine] = busy.get(engine, 0.0) + time
    return Modelled(
        us=total / 1e3,
        us_optimistic=sum(profile.optimistic for profile in profiles) / 1e3,
        floor_us=sum(profile.floor for profile in profiles) / 1e3,
        launches=len(profiles),
        launch_us=sum(profile.launch for profile in profiles) / 1e3,
        busy={engine: time / total for engine, time in busy.items()} if total else busy,
        regime=trust.regime(busy, total) if busy else "",
        profiles=tuple(profiles),
    )
