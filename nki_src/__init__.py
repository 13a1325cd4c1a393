"""The NKI kernels of neuron-vit.

Each kernel is imported from its own module, which imports `nki`. This file imports nothing, so that
`limits` can be read on a host without it.
"""
