"""The rule of every operator under `torch.func.vmap`.

Where every batched argument has images or rows in its first dimension, the new dimension is merged
into that one, and the operator runs once. Otherwise, as with weights of each sample, it runs once
for each sample. Either way kernels run where they would without vmap.
"""

from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch
from torch import Tensor

# Bounds of segments go with one image, so that calls with them cannot be merged.
_SEGMENTS = ("cu_seqlens", "cu_seqlens_q")


def merge_into_images(operator: Any, images: Dict[str, int]) -> None:
    """Give `operator` its rule.

    `images` names the arguments whose first dimension is that of images or rows, the main one
    first, with their number of dimensions; with fewer they serve all images. A size of 1 in the
    first dimension may stand for that of the main one. Names that the operator lacks are ignored.
    """
    names = [argument.name for argument in operator._opoverload._schema.arguments]
    bounds = [names.index(name) for name in _SEGMENTS if name in names]
    ranks = {names.index(name): rank for name, rank in images.items() if name in names}

    @operator.register_vmap
    def rule(info: Any, in_dims: Sequence[Optional[int]], *arguments: Any) -> Tuple[Any, Any]:
        samples = info.batch_size
        front = [
            argument.movedim(dim, 0) if dim is not None else argument
            for argument, dim in zip(arguments, in_dims)
        ]
        batched = [dim is not None for dim in in_dims]
        mergeable = all(
            not is_batched or (i in ranks and front[i].dim() == ranks[i] + 1)
            for i, is_batched in enumerate(batched)
        )
        if mergeable and all(i >= len(front) or front[i] is None for i in bounds):
            merged = _merged(front, batched, ranks, samples)
            size = front[0].shape[int(batched[0])]
            out = operator(*merged)
            if isinstance(out, Tensor):
                return out.unflatten(0, (samples, size)), 0
            return tuple(one.unflatten(0, (samples, size)) for one in out), (0,) * len(out)
        if samples == 0:
            raise ValueError(
                f"neuron-vit: {operator._name}: torch.func.vmap over 0 samples with parameters of "
                "each sample; there must be at least 1"
            )
        outs = [
            operator(*(f[sample] if b else f for f, b in zip(front, batched)))
            for sample in range(samples)
        ]
        if isinstance(outs[0], Tensor):
            return torch.stack(outs), 0
        return tuple(torch.stack(one) for one in zip(*outs)), (0,) * len(outs[0])


def _merged(
    front: List[Any], batched: List[bool], ranks: Dict[int, int], samples: int
) -> List[Any]:
    """The arguments with the dimension of samples merged into that of images."""
    size = front[0].shape[int(batched[0])]
    merged = list(front)
    for i, rank in ranks.items():
        value = front[i] if i < len(front) else None
        if value is None or (not batched[i] and value.dim() < rank):
            continue
        if not batched[i]:
            value = value[None]
        value = value.expand(samples, size, *value.shape[2:])
        merged[i] = value.reshape(samples * size, *value.shape[2:])
    return merged
