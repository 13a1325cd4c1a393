"""Generations compared by order."""

import nki
import nki.isa as nisa


@nki.jit
def kernel(x):
    if nisa.get_nc_version() >= nisa.nc_version.gen3:  # expect: E04-enum-comparison
    # instead: if nisa.get_nc_version() != nisa.nc_version.gen2:
        print("gen3 or later")
    return x
