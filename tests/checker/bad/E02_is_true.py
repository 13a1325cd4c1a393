"""`is True`, with nki imported under another name."""

import nki as neuron


@neuron.jit
def kernel(x, flag):
    if flag is True:  # expect: E02-is
    # instead: if flag == True:
        print("flag")
    return x
