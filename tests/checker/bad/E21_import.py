"""An import inside the kernel."""

import nki


@nki.jit
def kernel(x):
    import nki.language as nl  # expect: E21-import
    # instead: nl = nki.language

    nl.store(x, nl.load(x))
    return x
