"""`nki.typing`: annotations of a kernel's tensor parameters (NKI 0.3 release notes).

``x: nt.tensor[128, 512]`` states the shape that a kernel expects; ``nt.mutable_tensor`` marks a
tensor that the kernel writes. They document: the emulator, which sees the real shapes, checks
nothing against them.
"""

from types import GenericAlias


class tensor:
    """A tensor; ``tensor[128, 512]`` is one of that shape."""

    def __class_getitem__(cls, shape):
        return GenericAlias(cls, shape)


class mutable_tensor(tensor):
    """A tensor that the kernel writes."""
