"""BLAS runs one thread while any kernel runs, and its own number afterwards."""

import threading

import pytest

from .support import np, simulate

threadpoolctl = pytest.importorskip("threadpoolctl")


def blas_threads():
    return {i["num_threads"] for i in threadpoolctl.threadpool_info() if i["user_api"] == "blas"}


@pytest.fixture
def several_threads():
    np.ones((2, 2)) @ np.ones((2, 2))
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        if blas_threads() != {2}:
            pytest.skip("this BLAS has one thread")
        yield


def test_one_thread_inside_a_kernel_and_restored_after_it(several_threads):
    seen = []
    simulate(lambda: seen.append(blas_threads()) and None)()
    assert seen == [{1}] and blas_threads() == {2}


def test_restored_after_an_error(several_threads):
    def kernel():
        raise ValueError

    with pytest.raises(ValueError):
        simulate(kernel)()
    assert blas_threads() == {2}


def test_a_kernel_that_ends_in_another_thread_leaves_the_limit(several_threads):
    seen = []

    def kernel():
        other = threading.Thread(target=simulate(lambda: None))
        other.start()
        other.join()
        seen.append(blas_threads())

    simulate(kernel)()
    assert seen == [{1}] and blas_threads() == {2}
