"""Each kernel as a plain PyTorch expression: what the parity rule compares with.

These are the lines a model author would write with `torch.nn.functional`, valid in any float
dtype: in float64 they are the reference of the rule, in the kernel's dtype its base. They share
nothing with `reference/`, which is itself under test. Parameters are those of the kernels.
"""

import torch
import torch.nn.functional as F

ACTIVATIONS = {
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "silu": F.silu,
    "relu": F.relu,
}


def layer_norm(x, weight, bias, residual, eps):
    if residual is None:
        return F.layer_norm(x, x.shape[-1:], weight, bias, eps)
    total = x + residual
    return F.layer_norm(total, x.shape[-1:], weight, bias, eps), total


def rms_norm(x, weight, residual, eps):
    if residual is None:
        return F.rms_norm(x, x.shape[-1:], weight, eps)
    total = x + residual
    return F.rms_norm(total, x.shape[-1:], weight, eps), total


def linear(x, weight, bias, weight_layout):
    if weight_layout == "in_out":
        weight = weight.T
    if weight.dtype == torch.float16:
        # On a CPU twenty times faster than with a transposed view, and the same result.
        weight = weight.contiguous()
    return F.linear(x, weight, bias)


def ada_layer_norm(x, shift, scale, weight, bias, residual, gate, eps):
    return _ada_norm(
        x, shift, scale, residual, gate,
        lambda total: F.layer_norm(total, total.shape[-1:], weight, bias, eps),
    )  # fmt: skip


def ada_rms_norm(x, shift, scale, weight, residual, gate, eps):
    return _ada_norm(
        x, shift, scale, residual, gate,
        lambda total: F.rms_norm(total, total.shape[-1:], weight, eps),
    )  # fmt: skip


def _ada_norm(x, shift, scale, residual, gate, norm):
    shift, scale = shift[:, None], scale[:, None]
    if residual is None:
        return norm(x) * (1 + scale) + shift
    total = residual + (x if gate is None else gate[:, None] * x)
    return norm(total) * (1 + scale) + shift, total


def mlp(
    x, fc1_weight, fc1_bias, fc2_weight, fc2_bias, activation, weight_layout, norm_weight=None,
    norm_bias=None, norm_eps=0.0, norm=None,
):  # fmt: skip
    hidden = ACTIVATIONS[activation](linear(x, fc1_weight, fc1_bias, weight_layout))
    if norm is not None:
        hidden = _norm(hidden, norm_weight, norm_bias, norm_eps, norm)
    return linear(hidden, fc2_weight, fc2_bias, weight_layout)


def swiglu_mlp(
    x, gate_weight, gate_bias, up_weight, up_bias, down_weight, down_bias, activation,
    weight_layout, norm_weight=None, norm_bias=None, norm_eps=0.0, norm=None,
):  # fmt: skip
    if up_weight is None:
        gate, up = linear(x, gate_weight, gate_bias, weight_layout).chunk(2, -1)
    elif gate_weight is None:
        up, gate = linear(x, up_weight, up_bias, weight_layout).chunk(2, -1)
    else:
        gate = linear(x, gate_weight, gate_bias, weight_layout)
        up = linear(x, up_weight, up_bias, weight_layout)
    hidden = ACTIVATIONS[activation](gate) * up
    if norm is not None:
        hidden = _norm(hidden, norm_weight, norm_bias, norm_eps, norm)
    return linear(hidden, down_weight, down_bias, weight_layout)


def attention(
    q, k, v, scale, q_view, k_view, v_view,
    mask=None, kv_lens=None, cu_seqlens_q=None, cu_seqlens_k=None,
):  # fmt: skip
    q, k, v = (_operand(q, q_view), _operand(k, k_view), _operand(v, v_view))
    group = q.shape[1] // k.shape[1]
    k, v = (tensor.repeat_interleave(group, dim=1) for tensor in (k, v))
    scores = q @ k.transpose(-2, -1) * scale
    seen = _seen(scores, mask, kv_lens, cu_seqlens_q, cu_seqlens_k)
    if mask is not None and mask.dtype != torch.uint8:
        scores = scores + mask.to(scores.dtype)
    if seen is not None:
        scores = scores.masked_fill(~seen, float("-inf"))
    weights = torch.softmax(scores, dim=-1).nan_to_num(0.0)
    return (weights @ v).transpose(1, 2).contiguous()


def _seen(scores, mask, kv_lens, cu_seqlens_q, cu_seqlens_k):
    """Which keys a query sees, for every score; None where it is all."""
    _, _, queries, keys = scores.shape
    if mask is not None and mask.dtype == torch.uint8:
        return (mask != 0).expand(scores.shape)
    if kv_lens is not None:
        return torch.stack([torch.arange(keys) < length for length in kv_lens])[:, None, None]
    if cu_seqlens_q is None:
        return None
    seen = torch.zeros(queries, keys, dtype=torch.bool)
    for first in range(len(cu_seqlens_q) - 1):
        rows = slice(cu_seqlens_q[first], cu_seqlens_q[first + 1])
        seen[rows, cu_seqlens_k[first] : cu_seqlens_k[first + 1]] = True
    return seen


def vit_block(
    x, norm1_weight, norm1_bias, qkv_weight, qkv_bias, proj_weight, proj_bias, scale1,
    norm2_weight, norm2_bias, fc1_weight, fc1_bias, fc2_weight, fc2_bias, scale2,
    num_heads, eps, norm, activation, attention_scale, gate_weight=None, gate_bias=None,
    inner_weight=None, inner_bias=None, q_norm_weight=None, q_norm_bias=None, k_norm_weight=None,
    k_norm_bias=None, cos=None, sin=None, mask=None, kv_lens=None, cu_seqlens=None, inner_norm=None,
    inner_eps=0.0, qk_norm=None, qk_eps=0.0, rope="half",
):  # fmt: skip
    batch, tokens, _ = x.shape
    qkv = linear(_norm(x, norm1_weight, norm1_bias, eps, norm), qkv_weight, qkv_bias, "in_out")
    q, k, v = qkv.chunk(3, -1)
    if qk_norm is not None:
        q = _norm_of_heads(q, q_norm_weight, q_norm_bias, qk_eps, qk_norm)
        k = _norm_of_heads(k, k_norm_weight, k_norm_bias, qk_eps, qk_norm)
    q, k, v = (t.reshape(batch, tokens, num_heads, -1).transpose(1, 2) for t in (q, k, v))
    if cos is not None:
        q, k = rotated(q, cos, sin, rope), rotated(k, cos, sin, rope)
    seen = (mask, kv_lens, cu_seqlens, cu_seqlens)
    heads = attention(q, k, v, attention_scale, None, None, None, *seen).flatten(2)
    x = x + _scaled(linear(heads, proj_weight, proj_bias, "in_out"), scale1)
    normed = _norm(x, norm2_weight, norm2_bias, eps, norm)
    inner = (inner_weight, inner_bias, inner_eps, inner_norm)
    up, down = (fc1_weight, fc1_bias), (fc2_weight, fc2_bias)
    if gate_weight is None:
        branch = mlp(normed, *up, *down, activation, "in_out", *inner)
    else:
        gate = (gate_weight, gate_bias)
        branch = swiglu_mlp(normed, *gate, *up, *down, activation, "in_out", *inner)
    return x + _scaled(branch, scale2)


def vit_encoder(
    x, norm1_weight, norm1_bias, qkv_weight, qkv_bias, proj_weight, proj_bias, scale1,
    norm2_weight, norm2_bias, fc1_weight, fc1_bias, fc2_weight, fc2_bias, scale2,
    num_heads, eps, norm, activation, attention_scale, gate_weight=None, gate_bias=None,
    inner_weight=None, inner_bias=None, q_norm_weight=None, q_norm_bias=None, k_norm_weight=None,
    k_norm_bias=None, cos=None, sin=None, mask=None, kv_lens=None, cu_seqlens=None, inner_norm=None,
    inner_eps=0.0, qk_norm=None, qk_eps=0.0, rope="half",
):  # fmt: skip
    front = zip(*(
        stack if stack is not None else [None] * len(fc1_weight)
        for stack in (
            norm1_weight, norm1_bias, qkv_weight, qkv_bias, proj_weight, proj_bias, scale1,
            norm2_weight, norm2_bias, fc1_weight, fc1_bias, fc2_weight, fc2_bias, scale2,
        )
    ))  # fmt: skip
    back = zip(*(
        stack if stack is not None else [None] * len(fc1_weight)
        for stack in (
            gate_weight, gate_bias, inner_weight, inner_bias, q_norm_weight, q_norm_bias,
            k_norm_weight, k_norm_bias,
        )
    ))  # fmt: skip
    for first, last in zip(front, back):
        x = vit_block(
            x, *first, num_heads, eps, norm, activation, attention_scale, *last, cos, sin, mask,
            kv_lens, cu_seqlens, inner_norm, inner_eps, qk_norm, qk_eps, rope,
        )  # fmt: skip
    return x


def rotated(x, cos, sin, rope):
    """Rotary embedding of the last tokens of [B, H, S, d]: pairs of values as complex numbers are
    multiplied by cos + i sin, written out because each value has a cosine and a sine of its own."""
    cos, sin = (t.to(x.dtype) if t.dim() == 2 else t.to(x.dtype)[:, None] for t in (cos, sin))
    first = x.shape[2] - cos.shape[-2]
    half = x.shape[3] // 2
    if rope == "half":
        partner = torch.arange(x.shape[3]).roll(half)
        sign = torch.where(torch.arange(x.shape[3]) < half, -1, 1)
    else:
        partner = torch.arange(x.shape[3]) ^ 1
        sign = torch.where(torch.arange(x.shape[3]) % 2 == 0, -1, 1)
    last = x[:, :, first:]
    return torch.cat([x[:, :, :first], last * cos + last[..., partner] * sign * sin], dim=2)


def _norm_of_heads(x, weight, bias, eps, norm):
    return _norm(x.unflatten(-1, (-1, len(weight))), weight, bias, eps, norm).flatten(-2)


def _operand(tensor, view):
    return tensor if view is None else torch.as_strided(tensor, *view, tensor.storage_offset())


def _norm(x, weight, bias, eps, norm):
    if norm == "layer":
        return layer_norm(x, weight, bias, None, eps)
    return rms_norm(x, weight, None, eps)


def _scaled(branch, layer_scale):
    return branch if layer_scale is None else layer_scale * branch
