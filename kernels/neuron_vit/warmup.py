"""`warmup`: let a model compile what it launches before the first request does."""

import collections
from dataclasses import dataclass
from typing import Any, Callable, Dict, Optional, Sequence, Tuple, Union

import torch
from torch import Tensor, nn

from . import _dispatch, _validate
from .block import vit_block
from .block_params import BlockParams
from .encoder import vit_encoder
from .encoder_params import EncoderParams

_Subject = Union[nn.Module, BlockParams, EncoderParams, Callable[[Tensor], Any]]


@dataclass(frozen=True)
class Warmup:
    """What calls a warm-up made; `print` it for a table.

    Attributes:
        device: type of the device it ran on, such as "neuron".
        launches: how many NKI launches each kernel had, by kernel name.
        others: calls that ran no NKI kernel: (kernel name, why, how many).
    """

    device: str
    launches: Dict[str, int]
    others: Tuple[Tuple[str, str, int], ...]

    @property
    def compiled(self) -> bool:
        """Whether kernels are compiled now; the simulator compiles nothing."""
        return self.device == "neuron" and bool(self.launches)

    def __str__(self) -> str:
        lines = [f"{name}: {count} NKI launches" for name, count in self.launches.items()]
        lines += [f"{name}: {count} times PyTorch, {why}" for name, why, count in self.others]
        if not lines:
            lines = ["no call of neuron-vit: put the kernels into the model first"]
        if not self.compiled:
            simulated = f"the kernels ran in the simulator on {self.device}"
            lines.append(f"nothing was compiled: {simulated if self.launches else 'none ran'}")
        return "\n".join(lines)


def warmup(
    model: _Subject,
    *shapes: Sequence[int],
    dtype: Optional[torch.dtype] = None,
    device: Union[torch.device, str, None] = None,
) -> Warmup:
    """Run `model` once on zeros of each shape, so that its kernels are compiled for them.

    On a Trainium the first launch of a kernel with new shapes compiles it, which takes from seconds
    to minutes; later launches, also of later processes that find the compiler's cache, do not.

        print(nv.warmup(model, (1, 3, 224, 224), (8, 3, 224, 224)))

    Args:
        model: a module in evaluation mode, which is called with one tensor; `BlockParams` or
            `EncoderParams` without rotary tables, for which `vit_block` or `vit_encoder` is;
            or a function of one tensor that calls whatever it takes, with masks and tables.
        *shapes: of the tensor, one run for each.
        dtype: of the zeros; None is that of the model's weights, which a function does not have.
        device: of the zeros; None is that of the model's weights, for a function the CPU.

    Returns:
        What ran as NKI kernels and what did not, and why. On the CPU nothing is compiled, and the
        result says so.

    Raises:
        TypeError or ValueError: an argument does not fit; the message names it.
        NeuronVitUnsupported: NEURON_VIT_REQUIRE_NKI=1 and something would not run as a kernel.
    """
    if not shapes or not all(_is_shape(shape) for shape in shapes):
        found = "tensors" if any(isinstance(shape, Tensor) for shape in shapes) else shapes
        raise ValueError(
            f"neuron-vit: warmup: shapes are {found}; they must be one or more sequences of "
            "sizes. Pass the shapes of inputs, for example (8, 3, 224, 224)."
        )
    if dtype is not None and not isinstance(dtype, torch.dtype):
        raise _validate.wrong_type(
            "warmup", "dtype", dtype, "a torch.dtype or None", "Pass for example torch.bfloat16"
        )
    call = _call(model)
    weight = _first_weight(model)
    if dtype is None and weight is None:
        raise ValueError(
            "neuron-vit: warmup: dtype is None for a function; there are no weights that would "
            "tell. Pass it, for example dtype=torch.bfloat16."
        )
    dtype = weight.dtype if dtype is None else dtype
    if device is None:
        device = "cpu" if weight is None else weight.device
    device = _device(device)
    with _dispatch.recording() as calls, torch.inference_mode():
        for shape in shapes:
            call(torch.zeros(tuple(shape), dtype=dtype, device=device))
    counts = collections.Counter(calls)
    return Warmup(
        device.type,
        {name: count for (name, reason), count in counts.items() if not reason},
        tuple((name, reason, count) for (name, reason), count in counts.items() if reason),
    )


def _device(device: Any) -> torch.device:
    if not isinstance(device, (str, torch.device)):
        raise _validate.wrong_type(
            "warmup", "device", device, "a torch.device, its name or None", 'Pass "neuron" or "cpu"'
        )
    try:
        return torch.device(device)
    except RuntimeError as error:
        raise _validate.fail(
            "warmup",
            "device",
            f"is {device!r}",
            "it must be a device of PyTorch",
            'Pass "neuron" or "cpu"',
        ) from error


def _is_shape(shape: Any) -> bool:
    return isinstance(shape, (tuple, list)) and all(
        type(size) is int and size > 0 for size in shape
    )


def _call(model: _Subject) -> Callable[[Tensor], Any]:
    if isinstance(model, nn.Module) and model.training:
        raise ValueError(
            f"neuron-vit: warmup: model is a {type(model).__name__} in training mode; it must be "
            "in evaluation mode. Call model.eval() first."
        )
    if isinstance(model, (BlockParams, EncoderParams)):
        blocks = isinstance(model, EncoderParams)
        rope = model.form.rope if blocks else model.rope
        if rope is not None:
            raise ValueError(
                f"neuron-vit: warmup: model is a {type(model).__name__} with rope={rope!r}, which "
                "needs tables of the model's. Pass a function, for example "
                "lambda x: nv.vit_block(x, params, rope=tables)."
            )
        function = vit_encoder if blocks else vit_block
        return lambda x: function(x, model)
    if isinstance(model, type) or not callable(model):
        found = f"class {model.__name__}" if isinstance(model, type) else type(model).__name__
        raise TypeError(
            f"neuron-vit: warmup: model is a {found}; it must be a module, BlockParams, "
            "EncoderParams or a function of one tensor. Pass the model itself."
        )
    return model


def _first_weight(model: _Subject) -> Optional[Tensor]:
    """A tensor with the dtype and on the device of what the model takes."""
    if isinstance(model, BlockParams):
        return model.qkv_weight
    if isinstance(model, EncoderParams):
        return model.form.qkv_weight
    if isinstance(model, nn.Module):
        return next((weight for weight in model.parameters() if weight.is_floating_point()), None)
    return None
