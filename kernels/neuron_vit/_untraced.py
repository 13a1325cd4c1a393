"""Marking what torch.compile must not trace."""

from typing import Any, Callable


def untraced(reason: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """As `torch.compiler.disable(reason=...)`, which would import the compiler with the package.

    It sets the attributes by which the compiler knows such a function.
    """

    def mark(function: Any) -> Any:
        function._torchdynamo_disable = True
        function._torchdynamo_disable_msg = reason
        return function

    return mark
