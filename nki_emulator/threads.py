"""One BLAS thread while a kernel runs.

A tile's matrix product is too small to gain from a second thread, and when other processes use the
cores OpenBLAS threads wait for each other actively: a product then takes 20 times as long. NumPy
has no setting for it; `threadpoolctl` (installed with scikit-learn) does, and is used if present.
"""

import contextlib
import functools


@functools.cache
def _controller():
    try:
        import threadpoolctl
    except ModuleNotFoundError:
        return None
    return threadpoolctl.ThreadpoolController()


def single_threaded_blas():
    """Context manager that limits BLAS to one thread, where that is possible."""
    controller = _controller()
    if controller is None:
        return contextlib.nullcontext()
    return controller.limit(limits=1, user_api="blas")
