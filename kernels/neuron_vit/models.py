"""`apply`, `report` and `undo`: the kernels in a model of transformers, timm or diffusers."""

import warnings
from typing import Any, Iterator, List, NamedTuple, Optional, Type

from torch import nn

from . import _validate
from ._block_layer import ReplacedBlock, drops_values, refused_block
from ._calls import WITH_PARTS, Refusal, contracts
from ._layer_parts import defining_class
from ._part_layers import part_kind
from ._replace import (
    Replaced,
    is_covered,
    is_replaced,
    obstacle,
    original_class,
    replace,
    restore,
)
from ._report import Report, Row
from .diffusers_modules import (
    Surveyed,
    replace_diffusers_modules,
    restore_diffusers_modules,
    survey_diffusers_modules,
)
from .errors import NeuronVitFallbackWarning

_ATTENTION_NAMES = ("attention", "attn", "self_attn", "self_attention")

# Layers whose attention no replacement reaches, and why.
_OUT_OF_REACH = {
    "SamVisionLayer": "SAM adds relative positions that depend on the queries, in an attention of "
    "its own that calls no function which could be replaced",
    "Swinv2Layer": "Swin V2 compares queries and keys by their cosine and normalises behind "
    "attention and MLP, in an attention of its own that calls no function which could be replaced",
}
_NO_WAY_ROUND = "choose another model for attention on NKI; this one computes as before"


class _Finding(NamedTuple):
    """What may be done with one module. `parts`: of a block that is not replaced as a whole."""

    name: str
    module: nn.Module
    kind: Optional[Type[Replaced]]
    refusal: Optional[Refusal]
    is_block: bool
    parts: "List[_Finding]"


def apply(model: nn.Module) -> Report:
    """Replace what the kernels can run in this model, in place; what was done, module by module.

    Transformer blocks run as one `vit_block` where the layer is one that
    `BlockParams.from_module` reads, or BEiT's or Swin's. In other blocks, and outside of blocks,
    LayerNorms, RMSNorms, MLPs and attention modules of known classes run as operators; so do
    attention processors, MLPs and modulated norms of diffusers, alone and in its blocks. Nothing
    else changes: parameters, state dicts, hooks on layers, recorded hidden states and other models
    are as before, and every module keeps the name of its class.

    What a call asks for and `vit_block` does not do runs as the layer's own forward pass, with a
    `NeuronVitFallbackWarning` where a kernel would have run (NEURON_VIT_REQUIRE_NKI=1: an error):
    gradients of weights, active dropout, attention weights, autocast, a hook inside of a block.

    Weights are packed once, which takes their size in memory again. Changed weights are packed
    again: by `.to`, `load_state_dict` and at the next call outside of compiled code. Call `apply`
    again after changes that PyTorch does not count (`parameter.data.copy_`) and after changes in
    place between calls of compiled code. A deep copy is replaced too; a pickle holds the plain
    model, on which `apply` can be called where it is loaded.

    Args:
        model: any module; a model of transformers, timm or diffusers, a part of one, or a model
            with such parts. Applying twice is applying once.

    Returns:
        The report; `print` shows it as a table. Layers in training mode with dropout have the path
        "torch" until `model.eval()`.

    Raises:
        TypeError: model is not a module.
    """
    _check("apply", model)
    for finding in _flat(_findings(model)):
        if finding.kind is not None:
            replace(finding.module, finding.kind)
        elif is_replaced(finding.module) and not is_covered(finding.module):
            restore(finding.module)
    replace_diffusers_modules(model)
    told = report(model)
    _warn_of_what_is_left(model, told)
    return told


def report(model: nn.Module) -> Report:
    """What runs how in the model; before `apply`, what `apply` would do. Changes nothing.

    Args and errors as of `apply`.
    """
    _check("report", model)
    surveyed = survey_diffusers_modules(model)
    applied = any(is_replaced(module) for module in model.modules())
    applied = applied or any(entry.in_place for entry in surveyed)
    rows = [_row(finding, applied) for finding in _findings(model)]
    rows.extend(_diffusers_rows(model, surveyed, applied))
    return Report(rows, "run" if applied else "would run")


def undo(model: nn.Module) -> Report:
    """Make the model what it was before `apply`; the rows are what was given back.

    Args and errors as of `apply`. The report is empty for a model that `apply` did not change.
    """
    _check("undo", model)
    rows = []
    for name, module in model.named_modules():
        if is_replaced(module):
            is_block = isinstance(module, ReplacedBlock)
            path, reason = "torch", "given back"
            if is_covered(module):
                path, reason = "block" if is_block else "op", "; ".join(obstacle(module))
            else:
                restore(module)
            rows.append(Row(name, type(module).__name__, path, reason, is_block))
    for name in restore_diffusers_modules(model):
        kind = type(model.get_submodule(name)).__name__
        rows.append(Row(name, kind, "torch", "given back", _is_diffusers_block(kind)))
    return Report(rows, "ran")


def _check(function: str, model: Any) -> None:
    _validate.module(
        function,
        model,
        "Pass a model of transformers, timm or diffusers; a pipeline of transformers has its model "
        "under .model, one of diffusers under .transformer or .unet",
    )


def _findings(model: nn.Module) -> List[_Finding]:
    """Every block, and every known part outside of blocks, in the order of the modules."""
    found: List[_Finding] = []
    # What is inside of a module of diffusers is surveyed there.
    done = {
        id(inner)
        for module in model.modules()
        if _is_of_diffusers(module)
        for inner in module.modules()
    }
    for name, module in model.named_modules():
        if id(module) in done:
            continue
        finding = _block(name, module)
        if finding is None:
            finding = _part(name, module)
        if finding is None:
            continue
        found.append(finding)
        done.update(id(inner) for inner in module.modules())
    return found


def _is_of_diffusers(module: nn.Module) -> bool:
    return any(base.__module__.startswith("diffusers.") for base in type(module).__mro__)


def _diffusers_rows(model: nn.Module, surveyed: List[Surveyed], applied: bool) -> List[Row]:
    """Rows of the modules of diffusers; a block without kernels of its own has those inside."""
    rows = []
    listed = {entry.name for entry in surveyed}
    for entry in surveyed:
        path, reason = "op", f"as operators: {entry.path}"
        if entry.path == "torch":
            path, reason = "torch", entry.reason
        elif applied and not entry.in_place:
            path, reason = "torch", "it was not there when apply was called; call it again"
        rows.append(Row(entry.name, entry.kind, path, reason, _is_diffusers_block(entry.kind)))
    for name, module in model.named_modules():
        kind = type(module).__name__
        if name in listed or not (_is_of_diffusers(module) and _is_diffusers_block(kind)):
            continue
        inside = [row.path for row in rows if row.module.startswith(f"{name}.")]
        path = "op" if "op" in inside else "torch"
        reason = "its parts run as operators" if path == "op" else "no part of it is known here"
        rows.append(Row(name, kind, path, reason, True))
    return rows


def _is_diffusers_block(kind: str) -> bool:
    return kind.endswith("TransformerBlock")


def _block(name: str, module: nn.Module) -> Optional[_Finding]:
    known = defining_class(module) in contracts()
    if not known and not _looks_like_block(module):
        return None
    why = _OUT_OF_REACH.get(original_class(module).__name__)
    refusal = Refusal(why, _NO_WAY_ROUND) if why else None
    if refusal is None:
        refusal = refused_block(module)
    if refusal is None and defining_class(module) not in WITH_PARTS:
        return _Finding(name, module, ReplacedBlock, drops_values(module), True, [])
    parts = []
    for inner_name, inner in module.named_modules(prefix=name):
        if inner is not module:
            part = _part(inner_name, inner)
            if part is not None and part.kind is not None:
                parts.append(part)
    if refusal is None:
        return _Finding(name, module, ReplacedBlock, drops_values(module), True, parts)
    return _Finding(name, module, None, refusal, True, parts)


def _part(name: str, module: nn.Module) -> Optional[_Finding]:
    kind = part_kind(module)
    if kind is None:
        return None
    if isinstance(kind, Refusal):
        return _Finding(name, module, None, kind, False, [])
    return _Finding(name, module, kind, None, False, [])


def _looks_like_block(module: nn.Module) -> bool:
    """Whether a module of an unknown class has an attention beside a norm."""
    children = list(module.named_children())
    if "pool" in type(module).__name__.lower():
        return False
    return any(name in _ATTENTION_NAMES for name, _ in children) and any(
        "norm" in type(child).__name__.lower() for _, child in children
    )


def _flat(findings: List[_Finding]) -> Iterator[_Finding]:
    """The parts of a block before the block, which is read with its parts as they then are."""
    for finding in findings:
        yield from finding.parts
        yield finding


def _row(finding: _Finding, applied: bool) -> Row:
    path, refusal = _path(finding), finding.refusal
    if applied and not _in_place(finding):
        path = "torch"
        refusal = refusal or Refusal("it was not there when apply was called", "call it again")
    reason = "" if refusal is None else f"{refusal.reason}; {refusal.remedy}"
    if path == "block":
        reason = WITH_PARTS.get(defining_class(finding.module), "")
    if path == "op" and finding.is_block:
        names = [part.name[len(finding.name) :].lstrip(".") for part in finding.parts]
        reason += f". As operators: {', '.join(names)}"
    return Row(
        finding.name, original_class(finding.module).__name__, path, reason, finding.is_block
    )


def _path(finding: _Finding) -> str:
    if finding.is_block and finding.kind is not None:
        return "block" if finding.refusal is None else "torch"
    return "op" if finding.kind is not None or finding.parts else "torch"


def _in_place(finding: _Finding) -> bool:
    wanted = [finding, *finding.parts]
    return all(isinstance(entry.module, entry.kind) for entry in wanted if entry.kind is not None)


def _warn_of_what_is_left(model: nn.Module, told: Report) -> None:
    """Nothing at all was replaced, or no attention of a layer that cannot be."""
    reasons = {
        row.cls: row.reason
        for row in told
        if row.cls in _OUT_OF_REACH or not any(r.path != "torch" for r in told)
    }
    if len(told) and not reasons:
        return
    found = "; ".join(f"{cls}: {reason}" for cls, reason in reasons.items())
    warnings.warn(
        f"neuron-vit: apply: {type(model).__name__} keeps layers that no kernel runs. "
        f"{found or 'No layer of it is known here'}.",
        NeuronVitFallbackWarning,
        stacklevel=3,
    )
