"""What the NKI kernels take, asked before a launch."""

import difflib
import inspect
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Set, Union

import torch

from . import _environment, _nki, _validate

_KERNELS = (
    "ada_layer_norm",
    "ada_rms_norm",
    "attention",
    "layer_norm",
    "linear",
    "mlp",
    "rms_norm",
    "swiglu_mlp",
    "vit_block",
    "vit_encoder",
)

# Sizes that say whether a case has something.
_SWITCHES = ("gated", "inner_norm")

# Sizes that may be 0 where tokens and result are not empty, and what to do then.
_WITHOUT = {
    "k_len": "leave the call out: without a key the result is zeros",
    "hidden": "leave the MLP out: without hidden features its result is its last bias",
}


@dataclass(frozen=True)
class Support:
    """Whether a kernel takes a case; true in a condition when it does.

    `reason` names the limit and the value found, `remedy` what to do; both are empty when `ok`.
    """

    ok: bool
    reason: str = ""
    remedy: str = ""

    def __bool__(self) -> bool:
        return self.ok


def supports(
    name: str,
    *,
    dtype: Union[torch.dtype, str] = torch.bfloat16,
    target: Optional[str] = None,
    **shape: int,
) -> Support:
    """Whether the NKI kernel `name` takes tensors of these sizes. Needs neither `nki` nor a chip.

    Args:
        name: "layer_norm", "rms_norm", "ada_layer_norm", "ada_rms_norm", "linear", "mlp",
            "swiglu_mlp", "attention" (also under the name "scaled_dot_product_attention"),
            "vit_block" or "vit_encoder".
        dtype: of the tensors, as torch.dtype or its name.
        target: "trn2" or "trn3"; None is NEURON_PLATFORM_TARGET_OVERRIDE, or trn2 when that is
            unset.
        **shape: the sizes, all of them but those in brackets:

            - layer_norm, rms_norm, ada_layer_norm, ada_rms_norm: width
            - linear: tokens, in_features, out_features
            - mlp, swiglu_mlp: tokens, width, hidden, out [, inner_norm=True with a norm inside]
            - attention: batch, heads, q_len, k_len, head_dim [, bias_heads=1 with a mask or bias
              that heads share, key lengths or segments, =heads with one of each head]
            - vit_block, vit_encoder: batch, tokens, width, heads, head_dim, hidden [, gated=True,
              inner_norm=True; qk_norm=1 with a norm of each head, 2 with one of all heads
              together; rope=1 with rotary tables, 2 with tables of each image; bias_heads as of
              attention]

    Example:
        >>> supports("attention", batch=8, heads=12, q_len=197, k_len=197, head_dim=64).ok
        True
    """
    name = "attention" if name == "scaled_dot_product_attention" else name
    if not isinstance(name, str):
        raise _validate.wrong_type("supports", "name", name, _or(_KERNELS), "Pass one of these")
    if not isinstance(dtype, (torch.dtype, str)):
        allowed = "a torch.dtype or the name of one"
        raise _validate.wrong_type("supports", "dtype", dtype, allowed, "Pass torch.bfloat16")
    if name not in _KERNELS:
        raise ValueError(f"neuron-vit: supports: name is {name!r}; it must be {_or(_KERNELS)}")
    if target is None:
        target = _environment.target()
    elif target not in ("trn2", "trn3"):
        raise ValueError(f"neuron-vit: supports: target is {target!r}; it must be trn2 or trn3")
    parameters = inspect.signature(getattr(_nki.limits(), name)).parameters
    sizes = [size for size in parameters if size not in ("dtype_name", "target")]
    needed = {size for size in sizes if parameters[size].default is inspect.Parameter.empty}
    _check_names(name, sizes, needed, shape)
    for size, value in shape.items():
        _check_size(size, value)
    empty = [size for size in needed if shape[size] == 0 and size not in _WITHOUT]
    if empty:
        return Support(
            False,
            f"{name} {sorted(empty)[0]}=0, for empty tensors nothing is launched",
            "no remedy is needed: PyTorch operations give the result, usually an empty tensor",
        )
    return check(name, shape, dtype_name(dtype), target)


def _check_names(name: str, sizes: List[str], needed: Set[str], shape: Dict[str, Any]) -> None:
    """Raise TypeError unless `shape` has all the `needed` sizes and none but those of `sizes`."""
    missing = [size for size in sizes if size in needed and size not in shape]
    unknown = [size for size in shape if size not in sizes]
    if not missing and not unknown:
        return
    found = []
    if missing:
        found.append(f"misses {', '.join(missing)}")
    for size in unknown:
        close = difflib.get_close_matches(size, sizes, n=1)
        found.append(f"has no {size}{f', perhaps {close[0]} is meant' if close else ''}")
    optional = [size for size in sizes if size not in needed]
    rule = f"its sizes are {', '.join(size for size in sizes if size in needed)}"
    if optional:
        rule += f", and optional {', '.join(optional)}"
    raise TypeError(
        f"neuron-vit: supports: {name} {' and '.join(found)}; {rule}. Pass each of them by name."
    )


def _check_size(size: str, value: Any) -> None:
    if size in _SWITCHES:
        if value not in (0, 1):
            raise ValueError(f"neuron-vit: supports: {size} is {value!r}; it must be True or False")
    elif not _validate.is_integer(value):
        raise _validate.wrong_type("supports", size, value, "an integer", "Pass a size")
    elif value < 0:
        raise ValueError(f"neuron-vit: supports: {size} is {value}; it must not be negative")
    elif size in ("qk_norm", "rope") and value > 2:
        raise ValueError(f"neuron-vit: supports: {size} is {value}; it must be 0, 1 or 2")


def check(name: str, shape: Dict[str, int], dtype: str, target: str) -> Support:
    """`supports` for arguments that are known to be valid."""
    limits = _nki.limits()
    if dtype not in limits.DTYPE_BYTES:
        return Support(
            False,
            f"{name} dtype={dtype} is not {_or(tuple(limits.DTYPE_BYTES))}",
            "convert the tensors, for example with .to(torch.float32)",
        )
    for size, remedy in _WITHOUT.items():
        if shape.get(size) == 0:
            return Support(False, f"{name} {size}=0, the kernel takes no empty operand", remedy)
    return Support(*getattr(limits, name)(**shape, dtype_name=dtype, target=target))


def dtype_name(dtype: Union[torch.dtype, str]) -> str:
    """The name of a dtype as the limits spell it, such as "bfloat16"."""
    return str(dtype).replace("torch.", "")


def _or(names: tuple) -> str:
    return ", ".join(names[:-1]) + " or " + names[-1]
