"""A loop on the device that runs until a tile holds zero."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def accumulate(x, steps):
    value = nl.load(x)
    total = nl.zeros((128, 512), dtype=nl.float32)
    left = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    one = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.dma_copy(dst=left, src=steps)
    nisa.memset(dst=one, value=1)
    register = nisa.register_alloc(None)
    nisa.register_load(register, left)

    def body(condition):
        nisa.tensor_tensor(dst=total, data1=total, data2=value, op=nl.add)
        nisa.tensor_tensor(dst=left, data1=left, data2=one, op=nl.subtract)
        nisa.register_load(condition, left)
        return condition

    nl.while_loop(register, body)
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    nl.store(out, total)
    return out
