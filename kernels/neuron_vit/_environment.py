"""The environment variables that the package reads, each at the moment of a call.

=================================  ==========  =======  ===========================================
variable                           values      default  meaning
=================================  ==========  =======  ===========================================
NKI_SIMULATOR                      0, 1        0        run the NKI kernels on CPU tensors, through
                                                        `nki.simulate`
NEURON_VIT_REQUIRE_NKI             0, 1        0        raise where something other than an NKI
                                                        kernel would run
NEURON_LOGICAL_NC_CONFIG           1, 2        1        physical cores per logical core (LNC); the
                                                        Neuron runtime reads the same variable
NEURON_PLATFORM_TARGET_OVERRIDE    trn2, gen3  trn2     the chip whose limits hold; NKI reads the
                                   trn3, gen4           same variable. Trn2 is the smaller one
=================================  ==========  =======  ===========================================

Any other value is an error that names the variable.
"""

import os
from typing import Dict, TypeVar

_Value = TypeVar("_Value")

_SWITCH = {"0": False, "1": True}
_LOGICAL_CORES = {"1": 1, "2": 2}
_TARGETS = {"trn2": "trn2", "gen3": "trn2", "trn3": "trn3", "gen4": "trn3"}


def simulator_requested() -> bool:
    """Whether CPU tensors go through the NKI simulator."""
    return _read("NKI_SIMULATOR", _SWITCH, default="0")


def nki_required() -> bool:
    """Whether a call that does not reach an NKI kernel is an error."""
    return _read("NEURON_VIT_REQUIRE_NKI", _SWITCH, default="0")


def logical_cores() -> int:
    """How many physical cores one kernel launch spans: 1 or 2."""
    return _read("NEURON_LOGICAL_NC_CONFIG", _LOGICAL_CORES, default="1")


def target() -> str:
    """The chip that the limits are checked for: "trn2" or "trn3"."""
    return _read("NEURON_PLATFORM_TARGET_OVERRIDE", _TARGETS, default="trn2")


def _read(variable: str, values: Dict[str, _Value], default: str) -> _Value:
    text = os.environ.get(variable, default)
    if text not in values:
        raise ValueError(
            f"neuron-vit: the environment variable {variable} is {text!r}; it must be "
            f"{' or '.join(values)}, or unset for {default}"
        )
    return values[text]
