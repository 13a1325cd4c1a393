"""An attribute by name, in a function that is passed as a value."""

import nki


def read(config, name):
    return getattr(config, name)  # expect: E22-builtin
    # instead: return config.rows if name == "rows" else None


def apply(function, config):
    return function(config, "rows")


@nki.jit
def kernel(x, config):
    print(apply(read, config))
    return x
