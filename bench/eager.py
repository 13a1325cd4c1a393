"""The eager baseline of the modelled table: the same computation as one launch per operation.

Every PyTorch operation that touches memory is a launch of an NKI kernel of its own; views are free.
The big operations are the package's own kernels and the weights lie as those like them best, so the
baseline is not made to look bad.
"""

from __future__ import annotations

from types import ModuleType

from torch import Tensor, nn

import nki_emulator

nki_emulator.install()

import nki  # noqa: E402 - served by the emulator, unless the real one is installed

from bench import elementwise  # noqa: E402
from bench.blocks import LayerScale, PreNormBlock  # noqa: E402


class EagerLaunches:
    """The operations of a block as launches, on CPU tensors under emulation."""

    def __init__(self, package: ModuleType, lnc: int):
        self.package = package
        self.lnc = lnc

    def block(self, block: PreNormBlock, x: Tensor) -> Tensor:
        """A whole block on x [B, S, D]."""
        mixed = self.scaled(block.ls1, self.attention_branch(block, self.norm(block.norm1, x)))
        x = self.add(x, mixed)
        return self.add(x, self.scaled(block.ls2, self.mlp(block.mlp, self.norm(block.norm2, x))))

    def attention_branch(self, block: PreNormBlock, x: Tensor) -> Tensor:
        """QKV, attention and projection."""
        attention = block.attn
        qkv = self.linear(attention.qkv.weight, attention.qkv_bias, x)
        mixed = self.attention(*attention.heads(qkv, self.norm)).transpose(1, 2).reshape(x.shape)
        return self.linear(attention.proj.weight, attention.proj.bias, mixed)

    def attention(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Attention over [B, H, S, D] views."""
        return self.package.scaled_dot_product_attention(query, key, value)

    def norm(self, norm: nn.Module, x: Tensor) -> Tensor:
        """A LayerNorm or RMSNorm; nothing where the model has none."""
        if isinstance(norm, nn.Identity):
            return x
        if isinstance(norm, nn.RMSNorm):
            return self.rms_norm(norm, x)
        return self.package.layer_norm(x, x.shape[-1:], norm.weight, norm.bias, norm.eps)

    def rms_norm(self, norm: nn.Module, x: Tensor) -> Tensor:
        """An RMSNorm with the weight of any norm."""
        return self.package.rms_norm(x, x.shape[-1:], norm.weight, norm.eps)

    def linear(self, weight: Tensor, bias: Tensor | None, x: Tensor) -> Tensor:
        """A linear layer whose weight lies transposed, as the kernel streams it."""
        return self.package.linear(x, weight.t().contiguous().t(), bias)

    def mlp(self, mlp: nn.Module, x: Tensor) -> Tensor:
        """Two linear layers with the activation between, three launches; a gate is one more, and
        so is the norm behind it."""
        hidden = self.linear(mlp.fc1.weight, mlp.fc1.bias, x)
        gate, hidden = hidden.chunk(2, -1) if mlp.gated else (hidden, None)
        rows = self._launch(
            elementwise.activate, gate.contiguous().flatten(0, -2), mlp.activation
        )
        if mlp.gated:
            hidden = hidden.contiguous().flatten(0, -2)
            rows = self._launch(elementwise.multiply, rows, hidden)
        rows = self.norm(mlp.norm, rows.view(gate.shape))
        return self.linear(mlp.fc2.weight, mlp.fc2.bias, rows)

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """x + y."""
        rows = self._launch(elementwise.add, x.flatten(0, -2), y.contiguous().flatten(0, -2))
        return rows.view(x.shape)

    def scaled(self, scale: nn.Module, x: Tensor) -> Tensor:
        """LayerScale; nothing where the model has none."""
        if not isinstance(scale, LayerScale):
            return x
        rows = self._launch(elementwise.scale, x.flatten(0, -2), scale.gamma.detach()[None])
        return rows.view(x.shape)

    def _launch(self, kernel, *arguments) -> Tensor:
        kernel = kernel if self.lnc == 1 else kernel[self.lnc]
        return nki.simulate(kernel)(*arguments)
