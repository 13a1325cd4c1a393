"""The NKI kernels of neuron-vit.

Importing this package imports `nki`; `limits` alone imports nothing.
"""
