"""A misspelt keyword."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(dst, data):
    nisa.activation(
        dst=dst,
        op=nl.exp,
        data=data,
        scales=2.0,  # expect: E05-unknown-argument
        # instead: scale=2.0,
    )
    return dst
