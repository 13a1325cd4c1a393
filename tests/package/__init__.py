"""Tests of kernels/neuron_vit: what a caller of the package sees."""
