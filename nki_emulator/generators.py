"""XORWOW, the pseudo-random number generator of the engines: one or more states a lane.

Algorithm: G. Marsaglia, "Xorshift RNGs", Journal of Statistical Software 8(14), 2003, `xorwow`. A
state is six 32-bit words x, y, z, w, v, d, in this order here; the documentation of NKI names the
algorithm and the number of words and not their order, nor how a 32-bit seed becomes a state, so the
numbers of a chip differ from these. Three properties are documented and hold: the same seed gives
the same sequence, a state that was read and set again continues the sequence, and lanes that were
given equal states give equal numbers.

The Trn3 architecture guide, "XORWOW-based PRNG", gives VectorE four states a lane; before it
VectorE used an undocumented LFSR, in whose place stands a XORWOW with one state. The states with
which a kernel starts are undocumented too: here they are fixed, and different for each engine,
program and lane.
"""

import numpy as np

LANES = 128
WORDS = 6
SHIFTED = 5  # Words of the xorshift part; the sixth is a counter.
COUNTER_STEP = np.uint32(362437)

# NeuronCore-v4 VectorE (Trn3 architecture guide, "XORWOW-based PRNG").
VECTOR_STREAMS = 4


class Generator:
    """States of one engine in one program; ``states`` is uint32, (lanes, streams, words)."""

    def __init__(self, streams, entropy):
        self.states = np.empty((LANES, streams, WORDS), np.uint32)
        self.seed(entropy)

    def seed(self, entropy):
        """Fill every state from a tuple of non-negative integers."""
        words = np.random.SeedSequence(entropy).generate_state(self.states.size, np.uint32)
        self.states[...] = words.reshape(self.states.shape)

    def draw(self, lanes, count):
        """The next ``count`` numbers of the lanes (a slice): uint32, (lanes, count).

        The states of a lane take turns, and all of them advance by the same number of steps, so
        that an instruction always begins with the first. Lanes outside ``lanes`` stay as they are.
        """
        states = self.states[lanes]
        height, streams, _ = states.shape
        steps = -(-count // streams)
        # Row i + 5 is the word v after step i + 1; the four rows before it are w, z, y and x.
        history = np.empty((SHIFTED + steps, height * streams), np.uint32)
        history[:SHIFTED] = states[..., :SHIFTED].reshape(-1, SHIFTED).T
        for first in range(0, steps, SHIFTED):
            mixed = history[first : min(first + SHIFTED, steps)]
            mixed = mixed ^ (mixed >> 2)
            mixed ^= mixed << 1
            last = history[first + SHIFTED - 1]
            for row, mixed_in in zip(history[first + SHIFTED :], mixed):
                np.left_shift(last, 4, out=row)
                row ^= last
                row ^= mixed_in
                last = row
        counter = states[..., SHIFTED].reshape(-1)
        numbers = history[SHIFTED:] + (
            counter + COUNTER_STEP * np.arange(1, steps + 1, dtype=np.uint32)[:, None]
        )
        states[..., :SHIFTED] = history[-SHIFTED:].T.reshape(height, streams, SHIFTED)
        states[..., SHIFTED] += np.array([steps], np.uint32) * COUNTER_STEP
        by_lane = numbers.reshape(steps, height, streams).transpose(1, 0, 2)
        return by_lane.reshape(height, steps * streams)[:, :count]


def generator(session, engine):
    """The session's generator of ``engine`` (a member of the enumeration, VectorE or GpSimd)."""
    found = session.random.get(engine)
    if found is None:
        several = engine.name == "vector" and session.target.generation >= 4
        found = Generator(VECTOR_STREAMS if several else 1, (session.program, engine.value))
        session.random[engine] = found
    return found


def uniform(numbers):
    """uint32 numbers as float32 in [0, 1): their upper 24 bits, which float32 holds exactly."""
    return (numbers >> 8).astype(np.float32) * np.float32(2.0**-24)
