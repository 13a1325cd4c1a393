"""The target as an argument of jit."""

import nki


@nki.jit(platform_target="trn2")  # expect: E17-platform-target
# instead: @nki.jit
def kernel(x):
    return x
