"""Runs an NKI kernel on a CPU through `nki.simulate`, with torch tensors on both sides.

`nki.simulate` takes and returns NumPy arrays, in the emulator and in the official package alike;
bfloat16 crosses over as the `ml_dtypes` type of the same bits.
"""

import ml_dtypes
import numpy
import torch


def simulated(kernel, lnc=1):
    """A function with the kernel's parameters that takes and returns torch tensors; `lnc` programs
    share its launch."""

    def run(*arguments):
        import nki

        result = nki.simulate(kernel[lnc])(*[_to_numpy(argument) for argument in arguments])
        if isinstance(result, (tuple, list)):
            return tuple(_to_torch(array) for array in result)
        return _to_torch(result)

    return run


def _to_numpy(argument):
    if not isinstance(argument, torch.Tensor):
        return argument
    if argument.dtype == torch.bfloat16:
        return argument.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return argument.numpy()


def _to_torch(array):
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(numpy.ascontiguousarray(array).view(numpy.int16)).view(
            torch.bfloat16
        )
    return torch.from_numpy(numpy.ascontiguousarray(array))
