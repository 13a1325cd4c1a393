"""How one module of a model is replaced, and given back.

The instance gets another class: a subclass of its own that is made once for each class and differs
in its forward pass. So the module stays where it is, with its parameters, buffers, hooks, state
dict and name, `isinstance` answers as before, and no other module of its class is touched.

A pickle holds the plain module: it loads where this package cannot be imported, or is another
version of it, and runs there as its library wrote it. A deep copy is replaced as its original.
"""

import copy
import copyreg
import functools
from typing import Any, ClassVar, Dict, Optional, Tuple, Type

from torch import nn

# Where an instance keeps what its replacement needs; not in its state dict.
STATE = "_neuron_vit"

_classes: Dict[Tuple[type, type], type] = {}


class Replaced:
    """What all replaced modules have in common; a base in front of the module's own class."""

    # The class that the module had; `_layer_parts.defining_class` looks for the name.
    _neuron_vit_original: ClassVar[Type[nn.Module]]
    # The base that replaces its forward pass.
    _neuron_vit_kind: ClassVar[Type["Replaced"]]

    def _neuron_vit_forward(self, *args: Any, **kwargs: Any) -> Any:
        """The forward pass that runs instead."""
        raise NotImplementedError

    def _neuron_vit_prepare(self) -> None:
        """Make the state; called on a module that has just been replaced."""

    def _neuron_vit_release(self) -> None:
        """Remove what was added to the module beside its state and class."""

    def _own_forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._neuron_vit_original.forward(self, *args, **kwargs)

    def _plain_dict(self) -> Dict[str, Any]:
        """The attributes of the module without those of the replacement."""
        return {name: value for name, value in vars(self).items() if name != STATE}

    def __reduce_ex__(self, protocol: Any) -> Any:
        plain = self._neuron_vit_original.__new__(self._neuron_vit_original)
        plain.__dict__.update(self._plain_dict())
        make, arguments, *rest = plain.__reduce_ex__(protocol)
        if make is copyreg.__newobj__:
            # Which pickle only takes for an instance of the very class that is made.
            make, arguments = copyreg._reconstructor, (self._neuron_vit_original, object, None)
        return (make, arguments, *rest)

    def __deepcopy__(self, memo: Dict[int, Any]) -> Any:
        result = self._neuron_vit_original.__new__(self._neuron_vit_original)
        memo[id(self)] = result
        result.__setstate__(copy.deepcopy(self._plain_dict(), memo))
        replace(result, self._neuron_vit_kind)
        return result


def is_replaced(module: nn.Module) -> bool:
    """Whether this package replaced the module."""
    return isinstance(module, Replaced)


def is_covered(module: nn.Module) -> bool:
    """Whether another tool gave a replaced module a class of its own since, as sharding does."""
    return is_replaced(module) and "_neuron_vit_original" not in vars(type(module))


def original_class(module: nn.Module) -> type:
    """The class of the module, before it was replaced if it is."""
    return module._neuron_vit_original if is_replaced(module) else type(module)


def obstacle(module: nn.Module) -> Optional[Tuple[str, str]]:
    """Why the forward pass of the class is not the module's to replace, and what to do; or None."""
    if "forward" in vars(module):
        return (
            "another tool set a forward pass on this instance",
            "remove that first (kernelize and accelerate do it), or call apply before that tool",
        )
    if is_covered(module):
        return (
            "another tool changed its class after apply",
            "undo what that tool did, then call apply or undo",
        )
    if not is_replaced(module) and hasattr(type(module), "_neuron_vit_original"):
        return (
            "another copy of neuron-vit replaced it",
            "call undo of that copy first",
        )
    return None


def replace(module: nn.Module, kind: Type[Replaced]) -> None:
    """Give the module the forward pass of `kind`; one that has it is prepared anew."""
    if is_replaced(module):
        restore(module)
    module.__class__ = _class_of(type(module), kind)
    module._neuron_vit_prepare()


def restore(module: nn.Module) -> None:
    """Undo `replace`."""
    module._neuron_vit_release()
    vars(module).pop(STATE, None)
    module.__class__ = module._neuron_vit_original


def _class_of(original: type, kind: Type[Replaced]) -> type:
    key = (original, kind)
    if key not in _classes:

        @functools.wraps(original.forward)
        def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
            return self._neuron_vit_forward(*args, **kwargs)

        # The name stays, because libraries look for layers by it.
        members = {
            "forward": forward,
            "_neuron_vit_original": original,
            "_neuron_vit_kind": kind,
            "__module__": original.__module__,
            "__qualname__": original.__qualname__,
            "__doc__": original.__doc__,
        }
        _classes[key] = type(original.__name__, (kind, original), members)
    return _classes[key]
