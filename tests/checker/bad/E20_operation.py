"""exp is not an operation of VectorE."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(dst, data):
    nisa.tensor_scalar(dst=dst, data=data, op0=nl.exp, operand0=0.0)  # expect: E20-operation
    # instead: nisa.tensor_scalar(dst=dst, data=data, op0=nl.power, operand0=0.0)
    return dst
