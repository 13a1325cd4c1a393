"""try and except."""

import nki
import nki.language as nl


@nki.jit
def kernel(x):
    try:  # expect: E21-try
        # instead: if x.ndim == 2:
        nl.store(x, nl.load(x))
    except ValueError:
        # instead: else:
        print("no")
    return x
