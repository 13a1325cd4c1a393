"""Matrix products of several structures: lhs_t [K, M] and rhs [K, N] in HBM to [M, N].

M is a multiple of 128, K of 128 and N of 512. The tile of the result is [128, 512] in PSUM.
"""

import nki
import nki.isa as nisa
import nki.language as nl

TILE_K = 128
TILE_M = 128
TILE_N = 512


def _load(source, dtype):
    tile = nl.ndarray(source.shape, dtype=dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=source)
    return tile


def _store(result, psum, m, n):
    """PSUM tile (m, n) through SBUF to HBM."""
    tile = nl.ndarray((TILE_M, TILE_N), dtype=result.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=tile, src=psum)
    rows = result[m * TILE_M : (m + 1) * TILE_M, n * TILE_N : (n + 1) * TILE_N]
    nisa.dma_copy(dst=rows, src=tile)


@nki.jit
def loads_inside(lhs_t, rhs):
    """Both operands are loaded tile by tile in the innermost loop, the one over K."""
    k_size, m_size = lhs_t.shape
    n_size = rhs.shape[1]
    result = nl.ndarray((m_size, n_size), dtype=lhs_t.dtype, buffer=nl.shared_hbm)
    for m in range(m_size // TILE_M):
        for n in range(n_size // TILE_N):
            psum = nl.ndarray((TILE_M, TILE_N), dtype=nl.float32, buffer=nl.psum)
            for k in range(k_size // TILE_K):
                rows = nl.ds(k * TILE_K, TILE_K)
                left = _load(lhs_t[rows, nl.ds(m * TILE_M, TILE_M)], lhs_t.dtype)
                right = _load(rhs[rows, nl.ds(n * TILE_N, TILE_N)], rhs.dtype)
                nisa.nc_matmul(dst=psum, stationary=left, moving=right)
            _store(result, psum, m, n)
    return result


@nki.jit
def loads_hoisted(lhs_t, rhs):
    """The column of lhs_t is loaded once for each m, the column of rhs for each (m, n)."""
    k_size, m_size = lhs_t.shape
    n_size = rhs.shape[1]
    steps = k_size // TILE_K
    result = nl.ndarray((m_size, n_size), dtype=lhs_t.dtype, buffer=nl.shared_hbm)
    for m in range(m_size // TILE_M):
        left = []
        for k in range(steps):
            left.append(
                _load(lhs_t[nl.ds(k * TILE_K, TILE_K), nl.ds(m * TILE_M, TILE_M)], lhs_t.dtype)
            )
        for n in range(n_size // TILE_N):
            right = []
            for k in range(steps):
                right.append(
                    _load(rhs[nl.ds(k * TILE_K, TILE_K), nl.ds(n * TILE_N, TILE_N)], rhs.dtype)
                )
            psum = nl.ndarray((TILE_M, TILE_N), dtype=nl.float32, buffer=nl.psum)
            for k in range(steps):
                nisa.nc_matmul(dst=psum, stationary=left[k], moving=right[k])
            _store(result, psum, m, n)
    return result


@nki.jit
def blocked(lhs_t, rhs, m_tiles, n_tiles):
    """Blocks of m_tiles x n_tiles result tiles share what they load; K is not blocked."""
    k_size, m_size = lhs_t.shape
    n_size = rhs.shape[1]
    steps = k_size // TILE_K
    result = nl.ndarray((m_size, n_size), dtype=lhs_t.dtype, buffer=nl.shared_hbm)
    for m_block in range(m_size // (m_tiles * TILE_M)):
        left = []
        for m in range(m_tiles):
            column = (m_block * m_tiles + m) * TILE_M
            for k in range(steps):
                left.append(
                    _load(lhs_t[nl.ds(k * TILE_K, TILE_K), nl.ds(column, TILE_M)], lhs_t.dtype)
                )
        for n_block in range(n_size // (n_tiles * TILE_N)):
            right = []
            for n in range(n_tiles):
                column = (n_block * n_tiles + n) * TILE_N
                for k in range(steps):
                    right.append(
                        _load(rhs[nl.ds(k * TILE_K, TILE_K), nl.ds(column, TILE_N)], rhs.dtype)
                    )
            for m in range(m_tiles):
                for n in range(n_tiles):
                    psum = nl.ndarray((TILE_M, TILE_N), dtype=nl.float32, buffer=nl.psum)
                    for k in range(steps):
                        nisa.nc_matmul(
                            dst=psum, stationary=left[m * steps + k], moving=right[n * steps + k]
                        )
                    _store(result, psum, m_block * m_tiles + m, n_block * n_tiles + n)
    return result


@nki.jit
def blocked_k(lhs_t, rhs, m_tiles, n_tiles, k_tiles):
    """K is blocked too: partial results are added up in SBUF, the loads are wide."""
    k_size, m_size = lhs_t.shape
    n_size = rhs.shape[1]
    wide_m, wide_n = m_tiles * TILE_M, n_tiles * TILE_N
    result = nl.ndarray((m_size, n_size), dtype=lhs_t.dtype, buffer=nl.shared_hbm)
    for n_block in range(n_size // wide_n):
        sums = []
        for _ in range(m_size // TILE_M * n_tiles):
            tile = nl.ndarray((TILE_M, TILE_N), dtype=nl.float32, buffer=nl.sbuf)
            nisa.memset(dst=tile, value=0.0)
            sums.append(tile)
        for k_block in range(k_size // (k_tiles * TILE_K)):
            right = []
            for k in range(k_tiles):
                rows = nl.ds((k_block * k_tiles + k) * TILE_K, TILE_K)
                right.append(_load(rhs[rows, nl.ds(n_block * wide_n, wide_n)], rhs.dtype))
            for m_block in range(m_size // wide_m):
                left = []
                for k in range(k_tiles):
                    rows = nl.ds((k_block * k_tiles + k) * TILE_K, TILE_K)
                    left.append(_load(lhs_t[rows, nl.ds(m_block * wide_m, wide_m)], lhs_t.dtype))
                for n in range(n_tiles):
                    for m in range(m_tiles):
                        psum = nl.ndarray((TILE_M, TILE_N), dtype=nl.float32, buffer=nl.psum)
                        for k in range(k_tiles):
                            nisa.nc_matmul(
                                dst=psum,
                                stationary=left[k][:, nl.ds(m * TILE_M, TILE_M)],
                                moving=right[k][:, nl.ds(n * TILE_N, TILE_N)],
                            )
                        total = sums[(m_block * m_tiles + m) * n_tiles + n]
                        nisa.tensor_tensor(dst=total, data1=total, data2=psum, op=nl.add)
        for m in range(m_size // TILE_M):
            packed = nl.ndarray((TILE_M, wide_n), dtype=result.dtype, buffer=nl.sbuf)
            for n in range(n_tiles):
                nisa.tensor_copy(
                    dst=packed[:, nl.ds(n * TILE_N, TILE_N)], src=sums[m * n_tiles + n]
                )
            nisa.dma_copy(
                dst=result[nl.ds(m * TILE_M, TILE_M), nl.ds(n_block * wide_n, wide_n)], src=packed
            )
    return result


@nki.jit
def resident(lhs_t, rhs, slots):
    """Both operands stay in SBUF; ``slots`` PSUM tiles take turns."""
    k_size, m_size = lhs_t.shape
    n_size = rhs.shape[1]
    steps = k_size // TILE_K
    result = nl.ndarray((m_size, n_size), dtype=lhs_t.dtype, buffer=nl.shared_hbm)
    left, right, psum = [], [], []
    for k in range(steps):
        left.append(_load(lhs_t[nl.ds(k * TILE_K, TILE_K), :], lhs_t.dtype))
        right.append(_load(rhs[nl.ds(k * TILE_K, TILE_K), :], rhs.dtype))
    for _ in range(slots):
        psum.append(nl.ndarray((TILE_M, TILE_N), dtype=nl.float32, buffer=nl.psum))
    turn = 0
    for m in range(m_size // TILE_M):
        for n in range(n_size // TILE_N):
            for k in range(steps):
                nisa.nc_matmul(
                    dst=psum[turn],
                    stationary=left[k][:, nl.ds(m * TILE_M, TILE_M)],
                    moving=right[k][:, nl.ds(n * TILE_N, TILE_N)],
                    accumulate=k > 0,
                )
            _store(result, psum[turn], m, n)
            turn = (turn + 1) % slots
    return result
