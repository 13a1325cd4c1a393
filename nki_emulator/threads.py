"""One BLAS thread while a kernel runs.

A tile's matrix product is too small to gain from a second thread, and when other processes use the
cores OpenBLAS threads wait for each other actively: a product then takes 20 times as long. NumPy
has no setting for it; `threadpoolctl` (installed with scikit-learn) does, and is used if present.

The number of BLAS threads belongs to the process. The first kernel that starts lowers it and the
last one that ends restores it, so kernels may run in several threads at once.
"""

import contextlib
import functools
import threading


@functools.cache
def _controller():
    try:
        import threadpoolctl
    except ModuleNotFoundError:
        return None
    return threadpoolctl.ThreadpoolController()


class _Limit:
    def __init__(self):
        self.lock = threading.Lock()
        self.kernels = 0
        self.limiter = None

    def enter(self):
        with self.lock:
            self.kernels += 1
            if self.kernels == 1 and _controller() is not None:
                self.limiter = _controller().limit(limits=1, user_api="blas")

    def leave(self):
        with self.lock:
            self.kernels -= 1
            if self.kernels == 0 and self.limiter is not None:
                self.limiter.restore_original_limits()
                self.limiter = None


_limit = _Limit()


@contextlib.contextmanager
def single_threaded_blas():
    """Limit BLAS to one thread, where that is possible."""
    _limit.enter()
    try:
        yield
    finally:
        _limit.leave()
