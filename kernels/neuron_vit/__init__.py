"""Hand-written NKI kernels for Vision Transformers on AWS Trainium.

    from kernels import get_kernel
    nv = get_kernel("org/neuron-vit", version=1, trust_remote_code=True)
    y = nv.layer_norm(x, (768,), weight, bias)

Tensors on a `neuron` device run NKI kernels. On a CPU the same functions run PyTorch operations,
or, with NKI_SIMULATOR=1, the NKI kernels in the NKI simulator. `last_path()` and `launches()` tell
what ran, and NEURON_VIT_REQUIRE_NKI=1 refuses anything but NKI. `_environment` lists the
environment variables.
"""

from . import flash, layers
from ._dispatch import last_path, launches, reset_launches
from ._report import Report
from .attention import scaled_dot_product_attention
from .block import vit_block
from .block_params import BlockParams
from .capability import Support, supports
from .diffusers_attention import diffusers_attn_processors
from .encoder import vit_encoder
from .encoder_params import EncoderParams
from .errors import NeuronVitFallbackWarning, NeuronVitUnsupported
from .layer_hooks import hook_layers
from .models import apply, report, undo
from .normalization import ada_layer_norm, ada_rms_norm, layer_norm, rms_norm
from .projection import linear, mlp, swiglu_mlp
from .transformers_attention import (
    flash_attn_forward,
    register_with_transformers,
    supports_flash_attn,
)
from .warmup import Warmup, warmup

__all__ = [
    "BlockParams",
    "EncoderParams",
    "NeuronVitFallbackWarning",
    "NeuronVitUnsupported",
    "Report",
    "Support",
    "Warmup",
    "ada_layer_norm",
    "ada_rms_norm",
    "apply",
    "diffusers_attn_processors",
    "flash",
    "flash_attn_forward",
    "hook_layers",
    "last_path",
    "launches",
    "layer_norm",
    "layers",
    "linear",
    "mlp",
    "register_with_transformers",
    "report",
    "reset_launches",
    "rms_norm",
    "scaled_dot_product_attention",
    "supports",
    "supports_flash_attn",
    "swiglu_mlp",
    "undo",
    "vit_block",
    "vit_encoder",
    "warmup",
]
