"""A list as the default of a kernel argument."""

import nki


@nki.jit
def kernel(image, stride=[1, 1]):  # expect: E03-list-argument
# instead: def kernel(image, stride=(1, 1)):
    return image
