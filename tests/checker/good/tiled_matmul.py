"""A matmul over tiles, with edges that are not whole tiles."""

import nki
import nki.isa as nisa
import nki.language as nl

TILE_K = nl.tile_size.pmax
TILE_M = nl.tile_size.gemm_stationary_fmax
TILE_N = nl.tile_size.gemm_moving_fmax


@nki.jit
def matmul(lhs_t, rhs):
    depth, rows = lhs_t.shape
    depth_rhs, columns = rhs.shape
    assert depth == depth_rhs, f"contraction of {depth} and {depth_rhs}"
    out = nl.ndarray((rows, columns), dtype=lhs_t.dtype, buffer=nl.shared_hbm)
    for m in range(0, rows, TILE_M):
        m_size = min(TILE_M, rows - m)
        for n in range(0, columns, TILE_N):
            n_size = min(TILE_N, columns - n)
            psum = nl.ndarray((TILE_M, TILE_N), dtype=nl.float32, buffer=nl.psum)
            target = psum[0:m_size, 0:n_size]
            for k in range(0, depth, TILE_K):
                k_size = min(TILE_K, depth - k)
                stationary = nl.ndarray((TILE_K, TILE_M), dtype=lhs_t.dtype, buffer=nl.sbuf)
                moving = nl.ndarray((TILE_K, TILE_N), dtype=rhs.dtype, buffer=nl.sbuf)
                nisa.dma_copy(
                    dst=stationary[0:k_size, 0:m_size], src=lhs_t[k : k + k_size, m : m + m_size]
                )
                nisa.dma_copy(
                    dst=moving[0:k_size, 0:n_size], src=rhs[k : k + k_size, n : n + n_size]
                )
                nisa.nc_matmul(
                    dst=target,
                    stationary=stationary[0:k_size, 0:m_size],
                    moving=moving[0:k_size, 0:n_size],
                    accumulate=(k > 0),
                )
            result = nl.ndarray((TILE_M, TILE_N), dtype=out.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=result[0:m_size, 0:n_size], src=target)
            nisa.dma_copy(
                dst=out[m : m + m_size, n : n + n_size], src=result[0:m_size, 0:n_size]
            )
    return out
