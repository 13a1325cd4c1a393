"""A package of kernels: only what kernels reach is kernel code."""
