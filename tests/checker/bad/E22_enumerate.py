"""enumerate."""

import nki


@nki.jit
def kernel(x):
    for axis, size in enumerate(x.shape):  # expect: E22-builtin
    # instead: for axis, size in ((0, x.shape[0]), (1, x.shape[1])):
        print(axis, size)
    return x
