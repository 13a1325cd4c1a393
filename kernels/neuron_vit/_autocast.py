"""What `torch.autocast` means to the functions of the package.

Public functions convert their tensors as PyTorch's functions do, before they check them; then the
operator runs with autocast off, so that kernels and PyTorch operations see and return the same
dtypes. As in PyTorch, float64 is never converted, and a conversion is made at every call.

- `narrowed`: matrix products and attention run in autocast's dtype.
- `promoted`: norms run in the dtype of their input, on every device, as `F.layer_norm` does under
  CPU autocast; tensors that are added or multiplied are promoted as `+` and `*` would, and the
  norm's parameters follow.
"""

import contextlib
from typing import Any, Iterator, Optional, Sequence, Tuple

import torch

CONVERTED = (torch.bfloat16, torch.float16, torch.float32)


def enabled(device: torch.device) -> bool:
    """Whether operations on this device are cast."""
    kind = device.type
    return torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)


def active_dtype(tensor: Any) -> Optional[torch.dtype]:
    """The dtype of autocast on the device of `tensor`; None where autocast is off."""
    if not isinstance(tensor, torch.Tensor) or not enabled(tensor.device):
        return None
    return torch.get_autocast_dtype(tensor.device.type)


def narrowed(*values: Any) -> Tuple[Any, ...]:
    """Under autocast the tensors among `values` in its dtype; all as they are otherwise.

    The first value says on which device.
    """
    dtype = active_dtype(values[0])
    return values if dtype is None else tuple(converted(value, dtype) for value in values)


def promoted(
    stream: Sequence[Any], parameters: Sequence[Any]
) -> Tuple[Tuple[Any, ...], Tuple[Any, ...]]:
    """Under autocast all tensors in the dtype that those of `stream` promote to."""
    stream, parameters = tuple(stream), tuple(parameters)
    if active_dtype(stream[0]) is None:
        return stream, parameters
    dtype = stream[0].dtype
    for value in stream[1:]:
        if isinstance(value, torch.Tensor):
            dtype = torch.promote_types(dtype, value.dtype)
    if dtype not in CONVERTED:
        return stream, parameters
    return (
        tuple(converted(value, dtype) for value in stream),
        tuple(converted(value, dtype) for value in parameters),
    )


def converted(value: Any, dtype: torch.dtype) -> Any:
    """`value` in `dtype`, if it is a tensor that autocast converts."""
    if isinstance(value, torch.Tensor) and value.dtype in CONVERTED:
        return value.to(dtype)
    return value


def bias(value: Any, dtype: Optional[torch.dtype]) -> Any:
    """A mask or table beside tensors that are narrowed to `dtype`: one in float32 stays."""
    if dtype is None or not isinstance(value, torch.Tensor) or value.dtype == torch.float32:
        return value
    return converted(value, dtype)


@contextlib.contextmanager
def disabled(device: torch.device) -> Iterator[None]:
    """Autocast off on a type of device, as `torch.autocast(device, enabled=False)`, which some
    devices lack."""
    if not enabled(device):
        yield
        return
    torch.set_autocast_enabled(device.type, False)
    try:
        yield
    finally:
        torch.set_autocast_enabled(device.type, True)
