"""Both inputs in PSUM."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    a = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
    b = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
    total = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=total, data1=a, data2=b, op=nl.add)  # expect: E20-two-psum
    # instead: nisa.tensor_tensor(dst=b, data1=a, data2=total, op=nl.add)
    return x
