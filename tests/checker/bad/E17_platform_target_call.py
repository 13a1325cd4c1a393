"""The target as an argument where the kernel is launched."""

import nki


def kernel(x):
    return x


def launch(x):
    return nki.jit(kernel, platform_target="trn2")(x)  # expect: E17-platform-target
    # instead: return nki.jit(kernel)(x)
