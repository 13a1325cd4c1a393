"""Which implementation runs, and the record of what ran.

==================================  ===============================================
tensors on                          path
==================================  ===============================================
neuron                              NKI: `wrap_nki(kernel)[lnc](...)`
cpu, with NKI_SIMULATOR=1           NKI: `nki.simulate(kernel)(...)`
cpu, and every other device         PyTorch: the function of the same name in `reference`
==================================  ===============================================

A call on an NKI path that the kernel does not cover runs as PyTorch operations after a
`NeuronVitFallbackWarning`, one for each distinct reason in a process. With NEURON_VIT_REQUIRE_NKI=1
every call that would not run as NKI raises `NeuronVitUnsupported`. Calls with an empty first tensor
or an empty result launch nothing and are never refused.

`run` is called from the bodies of the torch operators, so that all this happens when an operator
runs, not when `torch.compile` traces it.
"""

import collections
import contextlib
import inspect
import os
import sys
import threading
import warnings
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import torch

from . import _autocast, _environment, _nki, capability, reference
from .errors import NeuronVitFallbackWarning, NeuronVitUnsupported

_lock = threading.Lock()
_simulator_lock = threading.Lock()
_launches: "collections.Counter[str]" = collections.Counter()
_warned = set()
_wrapped: Dict[str, Any] = {}
_thread = threading.local()

# Frames of these folders are not where a user would look for the call that fell back.
_INTERNAL_FOLDERS = tuple(
    os.path.dirname(os.path.abspath(path)) + os.sep for path in (__file__, torch.__file__)
)


def last_path() -> Optional[str]:
    """What the latest call in this thread ran: "nki", "torch", or None before the first.

    A backward pass always runs PyTorch operations and leaves the answer as it is.
    """
    return getattr(_thread, "last_path", None)


def launches() -> Dict[str, int]:
    """How many NKI launches each kernel has had in this process, by kernel name."""
    with _lock:
        return dict(_launches)


def reset_launches() -> None:
    """Set every launch count to zero and `last_path()` to None."""
    with _lock:
        _launches.clear()
    _thread.last_path = None


@contextlib.contextmanager
def recording() -> Iterator[List[Tuple[str, str]]]:
    """A list that every call of this thread goes into meanwhile: the name of the kernel, and why it
    did not run, "" where it did. Calls with nothing to do are left out."""
    outer = getattr(_thread, "calls", None)
    _thread.calls = []
    try:
        yield _thread.calls
    finally:
        _thread.calls = outer


def _record(name: str, reason: str) -> None:
    calls = getattr(_thread, "calls", None)
    if calls is not None:
        calls.append((name, reason))


def _no_kernels_on(device: torch.device) -> str:
    return f"the tensors are on {device}, where no NKI kernel runs"


def run(
    name: str,
    arguments: Sequence[Any],
    shape: Dict[str, int],
    for_kernel: Optional[Callable[[Sequence[Any]], Sequence[Any]]] = None,
) -> Any:
    """Run the kernel `name`, or its reference, on positional `arguments`.

    `shape` holds what the kernel's limits are checked against; `for_kernel` turns the arguments
    into those of the launch, by default by making every tensor dense.
    """
    function = getattr(reference, name)
    tensors = [argument for argument in arguments if isinstance(argument, torch.Tensor)]
    _environment.nki_required()  # A value that it does not take is an error at the first call.
    done = _nothing_to_do(function, arguments, tensors)
    if done is not None:
        return done
    launch = _launcher(tensors[0].device)
    if launch is None:
        _refuse_where_required(name, tensors[0].device)
        _record(name, _no_kernels_on(tensors[0].device))
        return _run_torch(function, arguments)

    dtype = capability.dtype_name(tensors[0].dtype)
    support = capability.check(name, shape, dtype, _environment.target())
    if not support:
        _fall_back(support.reason, support.remedy, _named_tensors(function, arguments))
        _record(name, support.reason)
        return _run_torch(function, arguments)

    prepared = (for_kernel or dense)([_detached(argument) for argument in arguments])
    result = launch(name, prepared)
    with _lock:
        _launches[name] += 1
    _thread.last_path = "nki"
    _record(name, "")
    return result


def run_without_kernel(
    name: str, function: Callable[..., Any], arguments: Sequence[Any], reason: str, remedy: str
) -> Any:
    """Run `function`, a variant of `name` that no kernel implements; `reason` says which.

    Warns or raises as for a fallback where the tensors are on an NKI path.
    """
    tensors = _named_tensors(function, arguments)
    _environment.nki_required()
    done = _nothing_to_do(function, arguments, list(tensors.values()))
    if done is not None:
        return done
    device = next(iter(tensors.values())).device
    if _launcher(device) is None:
        _refuse_where_required(name, device)
        _record(name, _no_kernels_on(device))
    else:
        _fall_back(reason, remedy, tensors)
        _record(name, reason)
    return _run_torch(function, arguments)


def _nothing_to_do(
    function: Callable[..., Any], arguments: Sequence[Any], tensors: Sequence[torch.Tensor]
) -> Any:
    """The result of a call whose first tensor, or result, is empty; None for any other call."""
    if all(tensor.numel() for tensor in tensors):
        return None
    result = _run_torch(function, arguments)
    results = result if isinstance(result, (tuple, list)) else (result,)
    if tensors[0].numel() and any(one.numel() for one in results):
        return None
    return result


def _run_torch(function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    _thread.last_path = "torch"
    device = next(a.device for a in arguments if isinstance(a, torch.Tensor))
    with _autocast.disabled(device):
        return function(*arguments)


def _launcher(device: torch.device) -> Optional[Callable[[str, Sequence[Any]], Any]]:
    simulated = _environment.simulator_requested()
    if device.type == "neuron":
        return _launch_on_device
    if device.type == "cpu" and simulated:
        return _launch_in_simulator
    return None


def _launch_on_device(name: str, arguments: Sequence[Any]) -> Any:
    try:
        from torch_neuronx import wrap_nki
    except ImportError as error:
        raise ImportError(
            f"neuron-vit: {name} on a neuron tensor needs wrap_nki from the Python package "
            "torch_neuronx; install the Neuron SDK's torch-neuronx"
        ) from error
    with _lock:
        if name not in _wrapped:
            # One wrapper per kernel: the compiled code is cached under it. The grid goes on the
            # wrapper, because wrap_nki(kernel[lnc]) would launch on one core.
            _wrapped[name] = wrap_nki(_nki.kernel(name))
        wrapped = _wrapped[name]
    return wrapped[_environment.logical_cores()](*arguments)


def _launch_in_simulator(name: str, arguments: Sequence[Any]) -> Any:
    nki = _nki.load_nki()
    cores = _environment.logical_cores()
    kernel = _nki.kernel(name)
    with _simulator_lock:
        return nki.simulate(kernel if cores == 1 else kernel[cores])(*arguments)


def _detached(argument: Any) -> Any:
    return argument.detach() if isinstance(argument, torch.Tensor) else argument


def dense(arguments: Sequence[Any]) -> Sequence[Any]:
    """The arguments with every tensor dense."""
    return [
        argument.contiguous() if isinstance(argument, torch.Tensor) else argument
        for argument in arguments
    ]


def _refuse_where_required(name: str, device: torch.device) -> None:
    if _environment.nki_required():
        raise NeuronVitUnsupported(
            f"neuron-vit: {name}: NEURON_VIT_REQUIRE_NKI=1, but {_no_kernels_on(device)}. "
            "Move them to a neuron device, or set NKI_SIMULATOR=1 to simulate "
            "the kernels on CPU tensors."
        )


def _fall_back(reason: str, remedy: str, tensors: Dict[str, torch.Tensor]) -> None:
    described = ", ".join(
        f"{name}={tuple(tensor.shape)} {capability.dtype_name(tensor.dtype)} {tensor.device}"
        for name, tensor in tensors.items()
    )
    message = (
        f"neuron-vit: {reason}. {remedy[:1].upper()}{remedy[1:]}. "
        f"[{described}, LNC={_environment.logical_cores()}]"
    )
    if _environment.nki_required():
        raise NeuronVitUnsupported(f"{message} NEURON_VIT_REQUIRE_NKI=1 forbids the PyTorch path.")
    with _lock:
        if reason in _warned:
            return
    # Noted only once the warning is out: where it is turned into an error, so is the next one.
    warnings.warn(
        f"{message} PyTorch operations run instead; NEURON_VIT_REQUIRE_NKI=1 makes this an error.",
        NeuronVitFallbackWarning,
        stacklevel=_levels_to_caller(),
    )
    with _lock:
        _warned.add(reason)


def _named_tensors(
    function: Callable[..., Any], arguments: Sequence[Any]
) -> Dict[str, torch.Tensor]:
    names = inspect.signature(function).parameters
    pairs = zip(names, arguments)
    return {name: value for name, value in pairs if isinstance(value, torch.Tensor)}


def _levels_to_caller() -> int:
    """The stack level, as `warnings.warn` counts, of the first frame outside package and torch."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_INTERNAL_FOLDERS):
        frame, level = frame.f_back, level + 1
    return level
