"""Write an NKI kernel, run it on this CPU, and see where its time would go on the chip.

    python -m nki_emulator examples/write_a_kernel.py timeline.html

The kernel scales embeddings to length 1, as retrieval does before it compares them. Prints how far
it is from NumPy, the memory it needs and its modelled time, and writes the timeline to the path
given, as a page for a browser. Nothing here was measured on a chip.

`python -m nki_emulator check examples/` tells whether the NKI compiler would accept the source.
"""

import argparse

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

import nki_emulator

PARTITIONS = 128  # the rows that one instruction works on


@nki.jit
def unit_rows(x):
    """x: HBM [N, D] float32, N a multiple of 128. Returns x / sqrt(sum(x^2)) of each row."""
    rows, width = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for first in range(0, rows, PARTITIONS):
        # New tiles in every pass: the next rows are loaded while these are worked on.
        tile = nl.ndarray((PARTITIONS, width), dtype=nl.float32, buffer=nl.sbuf)
        squares = nl.ndarray((PARTITIONS, width), dtype=nl.float32, buffer=nl.sbuf)
        total = nl.ndarray((PARTITIONS, 1), dtype=nl.float32, buffer=nl.sbuf)
        inverse = nl.ndarray((PARTITIONS, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[first : first + PARTITIONS, :])
        # ScalarE: squares, and their sum along the row in the same instruction.
        nisa.activation(
            dst=squares,
            op=nl.square,
            data=tile,
            reduce_op=nl.add,
            reduce_res=total,
            reduce_cmd=nisa.reduce_cmd.reset_reduce,
        )
        nisa.activation(dst=inverse, op=nl.rsqrt, data=total)
        # VectorE: a row times its own number.
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=inverse)
        nisa.dma_copy(dst=out[first : first + PARTITIONS, :], src=tile)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("html", help="where to write the timeline, such as timeline.html")
    options = parser.parse_args()

    x = np.random.default_rng(0).standard_normal((1024, 768), dtype=np.float32)
    expected = x / np.linalg.norm(x, axis=1, keepdims=True)
    print(f"largest difference from NumPy: {np.abs(unit_rows(x) - expected).max():.1e}")

    print(nki_emulator.memory_report(unit_rows)(x))

    profile = nki_emulator.profile(unit_rows)(x)
    print(f"modelled, not measured: {profile.total / 1e3:.1f} us on one {profile.target} core")
    print(f"floor by documented rates: {profile.floor / 1e3:.1f} us ({profile.floor_of})")
    for engine, time in profile.busy.items():
        print(f"  {engine:<8} busy {time / profile.total:.0%}")
    print("how far to trust it:", profile.claim)
    profile.to_html(options.html, title="unit_rows")
    print("timeline:", options.html)


if __name__ == "__main__":
    main()
