"""The NKI kernels of neuron-vit.

Kernels: norm, linear, mlp, attention, vit_block, vit_encoder. A whole block reads best in this
order: vit_block (what it computes), encoder (groups, layers, loops, programs), block (its two
tasks), group and parameters (what these work on); then the works of a task: norm, qkv with heads
and rotate, attend with score_bias, image_columns, project, mlp. schedule issues them side by side;
tiles and limits, the budgets, serve all.

Each kernel is imported from its own module, which imports `nki`. This file imports nothing, so that
`limits` can be read on a host without it.
"""
