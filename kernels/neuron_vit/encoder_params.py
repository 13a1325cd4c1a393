"""The weights of several transformer blocks, stacked once as the encoder kernel reads them."""

import collections.abc
import dataclasses
from dataclasses import dataclass
from typing import Any, Dict, Iterable, Sequence, Tuple

import torch
from torch import Tensor

from . import _validate
from .block_params import FIELDS, BlockParams, moved

_FUNCTION = "EncoderParams"


@dataclass(frozen=True, eq=False)
class EncoderParams:
    """The weights of L blocks that differ in nothing but the values of their weights.

    Build it with `from_blocks` or `from_module`; see `vit_encoder` for what it computes.

    Attributes:
        stacks: the tensors of `BlockParams` by name, each with an axis of L layers in front, such
            as qkv_weight [L, D, 3*H*d]; what the blocks do not have is absent.
        form: the `BlockParams` of the first block: the constants of all, and its weights as views
            into `stacks`.
    """

    stacks: Dict[str, Tensor]
    form: BlockParams

    def __post_init__(self) -> None:
        _check(self.stacks, self.form)

    def __reduce__(self) -> Tuple[Any, ...]:
        # The form is made of the stacks again, so that a copy shares memory between them too.
        constants = {name: getattr(self.form, name) for name in FIELDS if name not in self.stacks}
        return _rebuilt, (self.stacks, constants)

    @property
    def layers(self) -> int:
        """L, the number of blocks."""
        return self.stacks["qkv_weight"].shape[0]

    @property
    def dtype(self) -> torch.dtype:
        return self.form.dtype

    @classmethod
    def from_blocks(cls, blocks: Sequence[BlockParams]) -> "EncoderParams":
        """The weights of `blocks`, in their order, copied into stacks; gradients flow through.

        Raises:
            TypeError: something in `blocks` is no `BlockParams`.
            ValueError: there are no blocks, or one has another activation, norm, width, bias ...
                than the first; the message says which and what.
        """
        if not isinstance(blocks, collections.abc.Iterable):
            raise _validate.wrong_type(
                _FUNCTION,
                "blocks",
                blocks,
                "a list of BlockParams",
                "Pass those of all layers of a model",
            )
        blocks = list(blocks)
        if not blocks:
            raise _validate.fail(
                _FUNCTION,
                "blocks",
                "is empty",
                "it must hold at least one BlockParams",
                "Pass those of all layers of a model",
            )
        for index, block in enumerate(blocks):
            if not isinstance(block, BlockParams):
                raise TypeError(
                    f"neuron-vit: {_FUNCTION}: blocks[{index}] is a {type(block).__name__}; it "
                    "must be a BlockParams. Make one with BlockParams.from_module(layer)."
                )
            _check_alike(blocks[0], block, index)
        stacks = {
            name: torch.stack([getattr(block, name) for block in blocks])
            for name in blocks[0]._tensors()
        }
        return cls._of(stacks, blocks[0])

    @classmethod
    def from_module(cls, layers: Iterable[torch.nn.Module]) -> "EncoderParams":
        """The weights of the layers of a model: its torch.nn.ModuleList or Sequential of layers.

        `BlockParams.from_module` lists the layers that it takes. The result holds copies.

        Raises:
            NeuronVitUnsupported: a layer is none of those.
            TypeError or ValueError: as `from_blocks`.
        """
        if not isinstance(layers, (torch.nn.ModuleList, torch.nn.Sequential, list, tuple)):
            raise TypeError(
                f"neuron-vit: {_FUNCTION}: layers is a {type(layers).__name__}; it must be a "
                "torch.nn.ModuleList, a torch.nn.Sequential or a list of layers. Pass the "
                "container of the model's layers, for example model.blocks."
            )
        layers = list(layers)
        if not layers:
            raise _validate.fail(
                _FUNCTION,
                "layers",
                "is empty",
                "it must hold at least one layer",
                "Pass the container of the model's layers, for example model.blocks",
            )
        return cls.from_blocks([BlockParams.from_module(layer) for layer in layers])

    def to(self, *args: Any, **kwargs: Any) -> "EncoderParams":
        """A copy with every tensor passed through `torch.Tensor.to` with these arguments."""
        stacks = moved("EncoderParams", self.stacks, args, kwargs)
        return self._of(stacks, self.form)

    @classmethod
    def _of(cls, stacks: Dict[str, Tensor], form: BlockParams) -> "EncoderParams":
        first = {name: stack[0] for name, stack in stacks.items()}
        return cls(stacks, dataclasses.replace(form, **first))


def _rebuilt(stacks: Dict[str, Tensor], constants: Dict[str, Any]) -> EncoderParams:
    first = {name: stack[0] for name, stack in stacks.items()}
    return EncoderParams(stacks, BlockParams(**first, **constants))


def _check(stacks: Any, form: Any) -> None:
    remedy = "Use EncoderParams.from_blocks or EncoderParams.from_module"
    if not isinstance(form, BlockParams):
        raise _validate.wrong_type(_FUNCTION, "form", form, "a BlockParams", remedy)
    if not isinstance(stacks, dict):
        raise _validate.wrong_type(_FUNCTION, "stacks", stacks, "a dict of tensors", remedy)
    first = form._tensors()
    if set(stacks) != set(first):
        raise _validate.fail(
            _FUNCTION,
            "stacks",
            f"has {sorted(map(str, stacks))}",
            f"it must have the tensors of form, {sorted(first)}",
            remedy,
        )
    layers = None
    for name, stack in stacks.items():
        argument = f"stacks[{name!r}]"
        _validate.like(_FUNCTION, argument, stack, f"form.{name}", first[name])
        layers = stack.shape[:1] if layers is None else layers
        if not all(layers) or stack.shape != (*layers, *first[name].shape):
            raise _validate.fail(
                _FUNCTION,
                argument,
                f"has shape {tuple(stack.shape)}",
                f"it must be (layers, *{tuple(first[name].shape)}), with as many layers as in all "
                "stacks, and at least one",
                remedy,
            )


def _check_alike(first: BlockParams, block: BlockParams, index: int) -> None:
    for name in FIELDS:
        expected, found = _summary(getattr(first, name)), _summary(getattr(block, name))
        if found != expected:
            raise _validate.fail(
                _FUNCTION,
                f"blocks[{index}].{name}",
                f"is {found}, blocks[0] has {expected}",
                "all blocks must have the same",
                "Make an encoder of each run of equal blocks, or call vit_block for each block",
            )


def _summary(value: Any) -> str:
    """What has to be the same in all blocks: everything of a tensor but its values."""
    if isinstance(value, Tensor):
        return f"a tensor {tuple(value.shape)} of {value.dtype} on {value.device}"
    return repr(value)
