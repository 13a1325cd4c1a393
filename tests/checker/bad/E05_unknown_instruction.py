"""An instruction that does not exist."""

import nki
import nki.isa as nisa


@nki.jit
def kernel(dst, a, b):
    nisa.tensor_tensr(dst=dst, data1=a, data2=b)  # expect: E05-unknown-name
    # instead: nisa.tensor_tensor(dst=dst, data1=a, data2=b, op=nki.language.maximum)
    return dst
