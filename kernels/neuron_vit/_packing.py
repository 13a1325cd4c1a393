"""The packed weights of a layer, kept beside it for as long as its parameters stay as they are.

`BlockParams.from_module` copies. Here the copy is made at the first call, kept in the layer's
`__dict__`, outside its state dict, and made again when a parameter or a buffer has changed: every
call compares where they lie and their version counters. A compiled graph cannot compare, so an
operator in it does, and refuses to run on weights that are out of date.

PyTorch counts what `load_state_dict`, an optimizer or `copy_` under `torch.no_grad()` write. It
does not count what is written through `parameter.data`: after that, load the state dict again.
"""

from typing import Any, List, Optional

import torch
from torch import Tensor, nn

from ._ops import add_op_namespace_prefix, ops
from ._untraced import untraced
from ._watch import changes
from .block_params import BlockParams
from .errors import NeuronVitUnsupported

_ATTRIBUTE = "_neuron_vit_packed"


class _Kept:
    """Packed weights and the state of the tensors they were packed from. A copy of it is empty, so
    that a copied or pickled layer carries nothing along."""

    def __init__(self, params: Optional[BlockParams] = None, stamps: Optional[List[int]] = None):
        self.params = params
        self.stamps = stamps

    def __reduce__(self) -> Any:
        return (_Kept, ())


def packed(layer: nn.Module, base: type) -> BlockParams:
    """The weights of `layer`, read as those of a `base`, the model library's class that it is or
    derives from.

    Raises NeuronVitUnsupported where `BlockParams.from_module` does.
    """
    kept = layer.__dict__.get(_ATTRIBUTE)
    if torch.compiler.is_compiling():
        if kept is None or kept.params is None:
            _pack(layer, base)
            kept = layer.__dict__[_ATTRIBUTE]
        return kept.params
    if kept is None or kept.stamps != _stamps(_tensors(layer)):
        kept = _pack(layer, base)
    return kept.params


def unchanged(x: Tensor, layer: nn.Module) -> Tensor:
    """`x`; in a compiled graph, an error at run time where the packed weights are out of date."""
    # An exported program holds its weights as constants, whatever becomes of the layer.
    if not torch.compiler.is_compiling() or torch.compiler.is_exporting():
        return x
    return ops._unchanged(x, _tensors(layer), layer.__dict__[_ATTRIBUTE].stamps)


@untraced("call the layer once before compiling it, so that it is packed")
def _pack(layer: nn.Module, base: type) -> _Kept:
    # Seen as what it derives from, whose forward pass says what the layer computes.
    plain = base.__new__(base)
    plain.__dict__ = layer.__dict__
    # Under inference mode the copies would be tensors that nothing else may use.
    with torch.inference_mode(False), torch.no_grad():
        kept = _Kept(BlockParams.from_module(plain), _stamps(_tensors(layer)))
    layer.__dict__[_ATTRIBUTE] = kept
    return kept


def _tensors(layer: nn.Module) -> List[Tensor]:
    return [*layer.parameters(), *layer.buffers()]


def _stamps(tensors: List[Tensor]) -> List[int]:
    """Numbers that change when a tensor is replaced, moved, or written to."""
    stamps = []
    for tensor in tensors:
        stamps.extend((tensor.data_ptr(), changes(tensor)))
    return stamps


@torch.library.custom_op(add_op_namespace_prefix("_unchanged"), mutates_args=())
def _unchanged(x: Tensor, sources: List[Tensor], stamps: List[int]) -> Tensor:
    if _stamps(sources) != stamps:
        raise NeuronVitUnsupported(
            "neuron-vit: the weights of a compiled layer have changed since they were packed. Call "
            "the model once as it was before torch.compile, which packs them again."
        )
    return x.clone()


@_unchanged.register_fake
def _(x, sources, stamps):
    return torch.empty_like(x)


def _keep_count(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.count = len(inputs[1])


_unchanged.register_autograd(
    lambda ctx, gradient: (gradient, [None] * ctx.count, None), setup_context=_keep_count
)
