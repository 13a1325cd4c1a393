"""A kernel decorated by the old jit."""

from neuronxcc import nki  # expect: E06-neuronxcc
# instead: import nki


@nki.jit
def kernel(x):
    return x
