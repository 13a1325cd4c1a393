"""Rotary embedding of queries and keys that are columns, a value of a head a partition.

    q = q * cos + turned(q) * sin          turned: the two values of each pair change places

For the plain heads of qkv.py, whose projection leaves columns; heads with a norm are made as rows
and rotated there (heads.py). One slot of heads at a time:

1. TensorE: a matrix of zeros and ones, which swaps the values of each pair, is stationary, the
   columns are moving -> PSUM turned(q). Exact: each sum has one term.
2. GpSimd: q * cos, both in SBUF. VectorE: turned(q) * sin, from PSUM, then the sum, which rounds
   to the operand dtype over the columns that it came from.

The tables are turned to columns once a launch, with the signs of turned(q) in the sines and 1 and 0
for the tokens in front of the first position. All images use the same ones; those of an image lie
side by side, so one instruction rotates as many images as fit a PSUM bank. SBUF:
`limits.rotation_bytes`.
"""

import nki.isa as nisa
import nki.language as nl

from .heads import load_tables, pairs
from .limits import BANK, PARTITIONS


class Rotation(nl.NKIObject):
    """What rotates slots of `packed` heads of size `dim`, in images of `length` tokens.

    cos, sin: HBM [P, d], any float dtype, for the last P tokens of an image; rope: "half" or
    "interleaved"; dtype: of the queries and keys.
    """

    def __init__(self, cos, sin, rope, length, packed, dim, dtype):
        self.length = length
        rows = packed * dim
        self.turn = pair_swap(packed, dim, rope, dtype)
        self.cos = nl.ndarray((rows, length), dtype=nl.float32, buffer=nl.sbuf)
        self.sin = nl.ndarray((rows, length), dtype=nl.float32, buffer=nl.sbuf)
        for low in range(0, length, PARTITIONS):
            high = min(low + PARTITIONS, length)
            tables = load_tables(cos, sin, rope, 0, length, low // PARTITIONS)
            turn_table(self.cos[:, low:high], tables[0], packed)
            turn_table(self.sin[:, low:high], tables[1], packed)

    def apply(self, columns):
        """Rotate SBUF columns [<= packed * d, images * length] in place."""
        rows = columns.shape[0]
        for low, images, start, stop in split_images(columns.shape[1], self.length):
            size = stop - start
            part = columns[:, low : low + images * size]
            swapped = nl.ndarray(part.shape, dtype=nl.float32, buffer=nl.psum)
            nisa.nc_matmul(dst=swapped, stationary=self.turn[0:rows, 0:rows], moving=part)
            straight = nl.ndarray(part.shape, dtype=nl.float32, buffer=nl.sbuf)
            each = (images, size)
            nisa.tensor_tensor(
                dst=straight.reshape_dim(1, each),
                data1=part.reshape_dim(1, each),
                data2=over_images(self.cos[0:rows, start:stop], images),
                op=nl.multiply,
                engine=nisa.engine.gpsimd,
            )
            turned = nl.ndarray(part.shape, dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_tensor(
                dst=turned.reshape_dim(1, each),
                data1=swapped.reshape_dim(1, each),
                data2=over_images(self.sin[0:rows, start:stop], images),
                op=nl.multiply,
            )
            nisa.tensor_tensor(dst=part, data1=straight, data2=turned, op=nl.add)


def split_images(tokens, length):
    """`tokens` of whole images in parts that fit a PSUM bank: (first token, images, and the tokens
    [start, stop) of each image)."""
    parts = []
    shared = max(1, BANK // length)
    for low in range(0, tokens, shared * length):
        images = min(shared, (tokens - low) // length)
        for start in range(0, length, BANK):
            parts.append((low + start, images, start, min(start + BANK, length)))
    return parts


def pair_swap(packed, dim, rope, dtype):
    """SBUF [packed * d, packed * d]: a one where row and column are the two values of a pair."""
    rows = packed * dim
    heads = (packed, dim)
    identity = nl.shared_identity_matrix(rows, dtype=dtype).reshape_dim(1, heads)
    swap = nl.ndarray((rows, packed, dim), dtype=dtype, buffer=nl.sbuf)
    swap_low, swap_high = pairs(swap, rope)
    low, high = pairs(identity, rope)
    nisa.tensor_copy(dst=swap_low, src=high)
    nisa.tensor_copy(dst=swap_high, src=low)
    return swap.reshape((rows, rows))


def turn_table(dst, table, packed):
    """Columns dst [packed * d, count] = the rows of a table [128, d], the same for every head."""
    count = dst.shape[1]
    dim = table.shape[1]
    rows = nl.ndarray((count, packed, dim), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=rows, src=table[0:count, :].expand_dim(1).broadcast(1, packed))
    psum = nl.ndarray(dst.shape, dtype=nl.float32, buffer=nl.psum)
    nisa.nc_transpose(dst=psum, data=rows)
    nisa.tensor_copy(dst=dst, src=psum)


def over_images(table, images):
    """SBUF [rows, n] as [rows, images, n], the same for every image."""
    return table.expand_dim(1).broadcast(1, images)
