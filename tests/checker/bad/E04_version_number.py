"""A generation compared with a number."""

import nki
import nki.isa as nisa


@nki.jit
def kernel(x):
    if nisa.get_nc_version() == 3:  # expect: E04-enum-comparison
    # instead: if nisa.get_nc_version() == nisa.nc_version.gen3:
        print("gen3")
    return x
