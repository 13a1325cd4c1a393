"""Index tensors of the beta."""

import nki
import nki.language as nl


@nki.jit
def kernel(x):
    rows, columns = nl.mgrid[0:128, 0:512]  # expect: E07-beta-name
    # instead: rows, columns = x[0:128, 0:512].shape
    print(rows, columns)
    return x
