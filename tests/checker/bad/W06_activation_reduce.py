"""activation_reduce."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(dst, data, total):
    nisa.activation_reduce(dst, nl.exp, data, nl.add, total)  # expect: W06-activation-reduce
    # instead: nisa.activation(dst, nl.exp, data, reduce_op=nl.add, reduce_res=total)
    return dst
