"""Names and arguments that earlier versions of NKI had, with what replaces them.

From the migration guides (0.1 to 0.2, 0.2 to 0.3, 0.3 to 0.4) and, for W04 and W05, the
deprecation notes of the 0.6 reference.
"""

REMOVED_FUNCTIONS = {
    "nki.isa.tensor_copy_dynamic_src": "use nisa.tensor_copy with src.ap(scalar_offset=...)",
    "nki.isa.tensor_copy_dynamic_dst": "use nisa.tensor_copy with dst.ap(scalar_offset=...)",
}

REMOVED_ARGUMENTS = {
    ("nki.isa.dma_copy", "dst_rmw_op"): "use nisa.dma_compute(dst, srcs, reduce_op)",
    ("nki.isa.dma_copy", "unique_indices"): "use nisa.dma_compute(dst, srcs, reduce_op)",
    ("nki.isa.sendrecv", "use_gpsimd_dma"): "pass dma_engine=nisa.dma_engine.gpsimd_dma",
    ("nki.isa.register_move", "imm"): "pass src=, an integer or a register",
    (
        "nki.collectives.collective_permute_implicit",
        "num_channels",
    ): "pass channel_ids, a list",
    (
        "nki.collectives.collective_permute_implicit_current_processing_rank_id",
        "num_channels",
    ): "remove it",
}

# Removed names by dotted path; a path also covers what follows it after a dot.
BETA_NAMES = {
    "nki.language.arange": "slice the tensor, or use .ap()",
    "nki.language.mgrid": "slice the tensor, or use .ap()",
    "nki.language.par_dim": "put the partition axis first and give its plain size",
    "nki.language.spmd_dim": "launch with kernel[n], n = 1 or 2",
    "nki.language.nc": "launch with kernel[n], n = 1 or 2",
    "nki.language.loop_reduce": "accumulate in a tile, or let nisa.nc_matmul accumulate in PSUM",
    "nki.language.static_cast": "copy to a tile of the other dtype with nisa.tensor_copy",
    "nki.language.fp32": "write the number, -3.4028235e38 for the smallest float32",
    "nki.benchmark": "time the launch, or profile it with Neuron Explorer",
    "nki.profile": "profile with Neuron Explorer",
    "nki.baremetal": "call the @nki.jit kernel with NumPy arrays",
    "nki.simulate_kernel": "use nki.simulate(kernel)(...)",
    "nki.compiler.sbuf": "allocate with nl.ndarray(..., buffer=nl.sbuf, address=...)",
    "nki.compiler.psum": "allocate with nl.ndarray(..., buffer=nl.psum, address=...)",
}

# Arguments of many functions of the beta: mask on all, dtype on nki.isa.
BETA_ARGUMENTS = {
    "mask": "slice with min(): tensor[start : min(start + size, end)]",
    "dtype": "the result has the dtype of dst",
}

TILE_SIZE_NAMES = {
    "nki.language.tile_size.psum_fmax": "use nl.tile_size.psum_bank_fmax",
    "nki.language.tile_size.total_available_sbuf_size": "use nl.tile_size.sbuf_fmax_bytes",
}

ENGINE_CONSTANTS = {
    f"nki.isa.{name}_engine": f"use nisa.engine.{name}"
    for name in ("tensor", "vector", "scalar", "gpsimd", "unknown")
}

RANGE_ALIASES = frozenset(
    f"nki.language.{name}" for name in ("affine_range", "sequential_range", "static_range")
)


def beta_replacement(path):
    """What to do about a beta name, or None if ``path`` is not one."""
    for name, replacement in BETA_NAMES.items():
        if path == name or path.startswith(name + "."):
            return replacement
    return None
