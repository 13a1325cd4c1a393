"""An integer of more than 32 bits."""

import nki


@nki.jit
def kernel(x):
    print(0x1_0000_0000)  # expect: E21-literal
    # instead: print(0xFFFF_FFFF)
    return x
