"""What every NKI kernel computes, in plain PyTorch.

One function per kernel of `nki_src`, with the same name and the same positional parameters. The
package runs these functions on CPU tensors, in the backward pass and wherever a kernel does not
apply; the tests compare every kernel with them.

Numerics: matrix products take operands in the input dtype; normalisation statistics, softmax and
the residual stream are float32 for bfloat16 and float16 inputs. Inputs of float64 stay float64
throughout, so `function(*[t.double() for t in tensors])` is the truth that errors are measured
from. The output has the dtype of the input.
"""

from .attention import attention
from .linear import linear
from .mlp import mlp, swiglu_mlp
from .norm import ada_layer_norm, ada_rms_norm, layer_norm, rms_norm
from .vit_block import vit_block
from .vit_encoder import vit_encoder

__all__ = [
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
]
