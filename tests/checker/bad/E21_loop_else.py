"""else on a for loop."""

import nki


@nki.jit
def kernel(x, sizes):
    for size in sizes:
        if size > 128:
            break
    else:
        # instead: if len(sizes) == 1:
        print("all fit")  # expect: E21-loop-else
    return x
