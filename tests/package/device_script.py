"""Runs in a process of its own: the package on the stand-in neuron device.

Prints one JSON object. The test that starts it sets the environment and asserts on the values.
"""

import json
import os
import warnings

import torch
from torch.nn import functional as F

import neuron_vit as nv
import nki_emulator
from tests.package import stand_in_device


def error(result, expected):
    return (result.cpu() - expected).abs().max().item()


def main():
    stand_in_device.install()
    nki_emulator.install()
    import nki

    launches = stand_in_device.install_torch_neuronx(nki)
    torch.manual_seed(0)
    shown = {}
    x, weight, bias = torch.randn(2, 10, 64), torch.rand(64) + 0.5, torch.randn(64)
    there = [tensor.to("neuron") for tensor in (x, weight, bias)]

    out = nv.layer_norm(there[0], 64, there[1], there[2], 1e-6)
    shown["device"] = str(out.device)
    shown["path"] = nv.last_path()
    shown["layer_norm"] = error(out, F.layer_norm(x, (64,), weight, bias, 1e-6))

    q, k, v = torch.randn(3, 2, 10, 2, 32).transpose(2, 3).unbind(0)
    dense = torch.stack([q, k, v]).transpose(2, 3).contiguous().to("neuron")
    strided = dense.transpose(2, 3).unbind(0)
    os.environ["NEURON_LOGICAL_NC_CONFIG"] = "2"
    out = nv.scaled_dot_product_attention(*strided)
    window, view = launches[-1][2][1], launches[-1][2][5]
    shown["attention"] = error(out, F.scaled_dot_product_attention(q, k, v))
    shown["window"] = {
        "device": str(window.device),
        "shape": list(window.shape),
        "shares": window.untyped_storage()._cdata == dense.untyped_storage()._cdata,
        "offset": window.storage_offset(),
        "view": view,
    }
    shown["grids"] = [lnc for _, lnc, _ in launches]
    shown["names"] = [kernel.__name__ for kernel, _, _ in launches]
    shown["counts"] = nv.launches()

    # Backward: on the device, in PyTorch operations.
    leaf = there[0].detach().requires_grad_()
    nv.layer_norm(leaf, 64, there[1], there[2], 1e-6).square().sum().backward()
    host = x.detach().requires_grad_()
    F.layer_norm(host, (64,), weight, bias, 1e-6).square().sum().backward()
    shown["gradient"] = error(leaf.grad, host.grad)
    shown["launches_after_backward"] = len(launches)

    compiled = torch.compile(
        lambda x: nv.layer_norm(x, 64, eps=1e-6), fullgraph=True, backend="aot_eager"
    )
    shown["compiled"] = error(compiled(there[0]), F.layer_norm(x, (64,), eps=1e-6))
    shown["launches_after_compiled"] = len(launches)

    # Autocast: the kernel in its dtype, and the gradient in that of the tensor.
    square = torch.randn(64, 64).to("neuron")
    leaf = there[0].detach().requires_grad_()
    with torch.autocast("neuron", dtype=torch.bfloat16):
        out = nv.linear(leaf, square)
        shown["autocast"] = [str(out.dtype), str(nv.layer_norm(out, 64, there[1]).dtype)]
        shown["autocast_path"] = nv.last_path()
    out.sum().backward()
    shown["autocast"].append(str(leaf.grad.dtype))
    shown["launches_with_autocast"] = len(launches)

    # A case without a kernel.
    wide = torch.randn(1, 1, 4, 192)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        far = wide.to("neuron")
        for _ in range(2):
            out = nv.scaled_dot_product_attention(far, far, far)
    shown["fallback"] = error(out, F.scaled_dot_product_attention(wide, wide, wide))
    shown["fallback_path"] = nv.last_path()
    shown["warnings"] = [(w.category.__name__, str(w.message), w.filename) for w in caught]
    os.environ["NEURON_VIT_REQUIRE_NKI"] = "1"
    try:
        nv.scaled_dot_product_attention(far, far, far)
    except nv.NeuronVitUnsupported as refused:
        shown["refused"] = str(refused)

    # Operands on two devices.
    try:
        nv.layer_norm(there[0], 64, weight)
    except ValueError as wrong:
        shown["mixed"] = str(wrong)
    print(json.dumps(shown))


if __name__ == "__main__":
    main()
