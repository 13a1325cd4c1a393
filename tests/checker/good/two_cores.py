"""Two programs that share one tensor, a barrier, and results in nested tuples."""

import nki
import nki.isa as nisa
import nki.language as nl


def my_rows(rows):
    programs = nl.num_programs(axes=0) if nl.program_ndim() != 0 else 1
    program = nl.program_id(axis=0) if programs > 1 else 0
    share = rows // programs
    return (program * share, (program + 1) * share), programs


@nki.jit(experimental_flags="")
def kernel(x, y, padding=((0, 0), (1, 1))):
    ((first, last), programs) = my_rows(x.shape[0])
    (top, bottom), sides = padding
    total = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    scratch = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.private_hbm)
    tiles = []
    for source in (x, y):
        tile = nl.ndarray((last - first, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=source[first:last])
        tiles.append((tile, len(tiles) + top + bottom))
    nisa.dma_copy(dst=scratch[first:last], src=tiles[0][0])
    nisa.tensor_tensor(tiles[0][0], tiles[0][0], tiles[-1][0], nl.add)
    nisa.dma_copy(dst=total[first:last], src=tiles[0][0])
    if programs == 2:
        nisa.core_barrier(total, (0, 1))
    return total, (x, sides) if isinstance(sides, tuple) else (y, None)
