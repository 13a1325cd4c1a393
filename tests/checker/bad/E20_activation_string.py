"""The name of an activation function instead of the function."""

import nki
import nki.isa as nisa


@nki.jit
def kernel(dst, data):
    nisa.activation(dst=dst, op="gelu", data=data)  # expect: E20-operation
    # instead: nisa.activation(dst=dst, op=nki.language.gelu, data=data)
    return dst
