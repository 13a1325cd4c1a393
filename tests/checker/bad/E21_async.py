"""A coroutine as a kernel."""

import nki


@nki.jit
async def kernel(x):  # expect: E21-async
# instead: def kernel(x):
    return x
