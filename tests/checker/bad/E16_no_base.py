"""A plain dataclass as the type of a kernel argument."""

from dataclasses import dataclass

import nki


@dataclass
class Config:  # expect: E16-class-base
# instead: class Config(nki.language.NKIObject):
    rows: int = 128


@nki.jit
def kernel(x, config: Config):
    print(config.rows)
    return x
