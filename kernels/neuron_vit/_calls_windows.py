"""The calls of layers that attend within windows of a feature map (Swin).

A norm, an MLP and a sum treat every token alike, so the whole layer may run on the windows as it
does on the map: the map is cut into windows first, and put together last. That needs a map which
windows tile. Another one the layer pads with zeros behind its norm, which no block of windows does;
there its own forward pass runs, and its parts are operators.
"""

import sys
from typing import Any, Dict, Optional, Tuple, Union

import torch
from torch import Tensor, nn

from ._calls import Call, Contract, Refusal


def windows(
    layer: nn.Module,
    hidden_states: Tensor,
    input_dimensions: Tuple[int, int],
    always_partition: bool = False,
    **kwargs: Any,
) -> Union[Call, Refusal, None]:
    """The tokens [batch, height * width, width of a token] of a map."""
    if kwargs.get("output_attentions"):
        return Refusal(
            "vit_block has no output_attentions", "call the model without output_attentions"
        )
    if not always_partition:
        layer.set_shift_and_window_size(input_dimensions)
    height, width = input_dimensions
    side = layer.window_size
    if height % side or width % side:
        return None
    library = sys.modules[layer._neuron_vit_original.__module__]
    batch, _, channels = hidden_states.shape
    grid = layer.cyclic_shift(hidden_states.view(batch, height, width, channels))
    x = library.window_partition(grid, side).view(-1, side * side, channels)
    shifted = layer.get_attn_mask(height, width, hidden_states.dtype, hidden_states.device)

    def finish(y: Tensor) -> Tuple[Tensor, None]:
        grid = library.window_reverse(y.view(-1, side, side, channels), side, height, width)
        grid = layer.cyclic_shift(grid, reverse=True)
        return grid.reshape(batch, height * width, channels), None

    return Call(x, attn_mask=_scores(layer, shifted, batch), finish=finish)


def _scores(layer: nn.Module, shifted: Optional[Tensor], batch: int) -> Tensor:
    """The bias of the layer, [1, heads, tokens, tokens], and with the mask [windows, tokens,
    tokens] of a shifted map [batch * windows, heads, tokens, tokens]."""
    bias = layer.attention.relative_position_bias()
    if shifted is None:
        return bias
    scores = bias + shifted[:, None]
    return scores if batch == 1 else torch.cat([scores] * batch)


CONTRACTS: Dict[str, Contract] = {"SwinLayer": windows}
