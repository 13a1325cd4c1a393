"""The parameters of blocks: a dict of HBM tensors or None, named as the arguments of `vit_block`;
those of several layers are stacked, with an axis of layers in front. And their vectors on the chip.
"""

import nki.isa as nisa
import nki.language as nl

from .heads import head_shape
from .limits import PARTITIONS, heads_per_chunk, queries_kind
from .mlp import MlpVectors, gated_weights, plain_weights
from .tiles import broadcast_row, load_columns


def layer_of(weights, index):
    """The parameters of layer `index`, an int or a register, of stacked ones."""
    layer = {}
    for name in weights.keys():
        layer[name] = None if weights[name] == None else weights[name].select(0, index)
    return layer


def layers_of(weights, first, end):
    """The parameters of layers [first, end) of stacked ones, as a list."""
    layers = []
    for layer in range(first, end):
        layers.append(layer_of(weights, layer))
    return layers


def blocks_of(weights, first, count, size):
    """Stacked parameters from layer `first` on, as `count` stacks [size, ...] of which only the
    first layer need exist in the last."""
    blocks = {}
    for name in weights.keys():
        tensor = weights[name]
        if tensor == None:
            blocks[name] = None
        elif first + count * size <= tensor.shape[0]:
            whole = tensor[first : first + count * size]
            blocks[name] = whole.reshape_dim(0, (count, size))
        else:
            blocks[name] = tensor.slice(0, first, first + (count - 1) * size + 1, size).expand_dim(
                1
            )
    return blocks


def stack_of_one(weights):
    """The parameters of one block as those of a stack of one."""
    stack = {}
    for name in weights.keys():
        stack[name] = None if weights[name] == None else weights[name].expand_dim(0)
    return stack


class Options(nl.NKIObject):
    """What the blocks of a launch compute, and what all their layers share: the arguments of
    `vit_block` that are not parameters of one layer."""

    def __init__(
        self,
        num_heads,
        eps,
        norm,
        activation,
        attention_scale,
        inner_norm,
        inner_eps,
        qk_norm,
        qk_eps,
        rope,
        cos,
        sin,
        mask,
        kv_lens,
        cu_seqlens,
    ):
        self.num_heads = num_heads
        self.eps = eps
        self.norm = norm
        self.activation = activation
        self.attention_scale = attention_scale
        self.inner_norm = inner_norm
        self.inner_eps = inner_eps
        self.qk_norm = qk_norm
        self.qk_eps = qk_eps
        self.rope = rope
        self.cos = cos
        self.sin = sin
        self.mask = mask
        self.kv_lens = kv_lens
        self.cu_seqlens = cu_seqlens

    def bias_heads(self):
        """Heads of the score bias, see `limits.block_bytes`."""
        if self.mask != None:
            return self.mask.shape[1]
        return 0 if self.kv_lens == None and self.cu_seqlens == None else 1

    def queries(self, weights, dim):
        """How queries and keys are made, see `limits.queries_kind`."""
        norm = 0
        if self.qk_norm != None:
            norm = 2 if weights["q_norm_weight"].shape[-1] > dim else 1
        rope = 0
        if self.cos != None:
            rope = len(self.cos.shape) - 1
        return queries_kind(norm, rope, dim)

    def mlp(self, weights):
        """`MlpWeights` of a layer."""
        inner = None
        if self.inner_norm != None:
            inner = (
                weights["inner_weight"],
                weights["inner_bias"],
                self.inner_eps,
                self.inner_norm,
            )
        if weights["gate_weight"] == None:
            return plain_weights(
                weights["fc1_weight"],
                weights["fc1_bias"],
                weights["fc2_weight"],
                weights["fc2_bias"],
                self.activation,
                "in_out",
                inner,
            )
        return gated_weights(
            weights["gate_weight"],
            weights["gate_bias"],
            weights["fc1_weight"],
            weights["fc1_bias"],
            weights["fc2_weight"],
            weights["fc2_bias"],
            self.activation,
            "in_out",
            inner,
        )

    def head_shape(self, weights, dim, cos, sin):
        """`HeadShape` of a layer."""
        return head_shape(
            dim,
            weights["q_norm_weight"],
            weights["q_norm_bias"],
            weights["k_norm_weight"],
            weights["k_norm_bias"],
            self.qk_norm,
            self.qk_eps,
            cos,
            sin,
            self.rope,
        )


class AttentionVectors(nl.NKIObject):
    """The vectors of a layer that `Attention` needs, on the chip; None where absent.

    norm_weight, norm_bias: columns [128, chunks] float32 (`tiles.load_columns`); queries, keys: the
    biases of the heads as columns [packed * d, slots], unless these are made as rows; values:
    broadcast row [128, heads * d].
    """

    def __init__(self, weights, form):
        width = weights["qkv_weight"].shape[0]
        embed = form.heads * form.dim
        packed = min(form.heads, heads_per_chunk(form.dim)) * form.dim
        self.norm_weight = load_columns(weights["norm1_weight"], 0, width, PARTITIONS)
        self.norm_bias = load_columns(weights["norm1_bias"], 0, width, PARTITIONS)
        self.queries = None
        self.keys = None
        if not form.as_rows:
            self.queries = load_columns(weights["qkv_bias"], 0, embed, packed)
            self.keys = load_columns(weights["qkv_bias"], embed, embed, packed)
        self.values = broadcast_row(weights["qkv_bias"], 2 * embed, embed)


class RestVectors(nl.NKIObject):
    """The vectors of a layer that `Rest` needs, on the chip; None where absent.

    norm_weight, norm_bias: columns [128, chunks] float32 (`tiles.load_columns`); mlp: `MlpVectors`;
    scale1, scale2: broadcast rows [128, width]; proj_bias, fc2_bias: such rows times their scale,
    which wait for their products in the residual.
    """

    def __init__(self, weights, form):
        width = weights["fc2_weight"].shape[1]
        self.scale1 = broadcast_row(weights["scale1"], 0, width)
        self.proj_bias = scaled_row(weights["proj_bias"], self.scale1)
        self.norm_weight = load_columns(weights["norm2_weight"], 0, width, PARTITIONS)
        self.norm_bias = load_columns(weights["norm2_bias"], 0, width, PARTITIONS)
        self.mlp = MlpVectors(form.options.mlp(weights))
        self.scale2 = broadcast_row(weights["scale2"], 0, width)
        self.fc2_bias = scaled_row(weights["fc2_bias"], self.scale2)


def scaled_row(vector, scale):
    """HBM vector [n] times a broadcast row, or None for 1, as broadcast row [128, n]; None stays
    None."""
    if vector == None:
        return None
    row = broadcast_row(vector, 0, vector.shape[0])
    if scale == None:
        return row
    product = nl.ndarray(row.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_tensor(
        dst=product, data1=row, data2=scale, op=nl.multiply, engine=nisa.engine.gpsimd
    )
    return product
