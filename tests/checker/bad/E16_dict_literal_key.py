"""Integers as keys of a dictionary."""

import nki


@nki.jit
def kernel(x):
    sizes = {"rows": 128, 2: 512}  # expect: E16-dict-key
    # instead: sizes = {"rows": 128, "columns": 512}
    print(sizes)
    return x
