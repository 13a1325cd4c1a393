"""dtype= on an instruction."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(dst, a, b):
    nisa.tensor_tensor(dst, a, b, op=nl.add, dtype=nl.float32)  # expect: E07-beta-argument
    # instead: nisa.tensor_tensor(dst, a, b, op=nl.add)
    return dst
