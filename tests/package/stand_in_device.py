"""A `neuron` device without a chip: PyTorch's Python backend over CPU memory.

`install()` changes the process for good, so tests use it in a process of their own. After it,
`tensor.to("neuron")` gives a tensor whose device, strides and storage are PyTorch's own; every
operation on it runs on the CPU memory behind it. `install_torch_neuronx()` adds a module of that
name whose `wrap_nki` notes each launch and runs the kernel in the simulator.
"""

import sys
from types import ModuleType

import torch
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

# Address of a device storage -> the CPU tensor, one-dimensional, that holds its values.
_memory = {}
_libraries = []


def install():
    """Register the device."""
    _setup_privateuseone_for_python_backend("neuron")
    library = torch.library.Library("_", "IMPL")
    library.fallback(_run_on_cpu, "PrivateUse1")
    # What a backend adds that supports torch.autocast.
    library.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    torch.neuron.get_amp_supported_dtype = lambda: [torch.bfloat16, torch.float16]
    _libraries.append(library)  # it unregisters when it is collected


def install_torch_neuronx(nki):
    """Register the module; return the list that gets (kernel, lnc, arguments) of every launch."""
    launches = []

    class Wrapped:
        def __init__(self, kernel):
            self.kernel = kernel

        def __getitem__(self, lnc):
            def launch(*arguments):
                launches.append((self.kernel, lnc, arguments))
                result = nki.simulate(self.kernel[lnc])(*tree_map(_on_cpu, arguments))
                return tree_map(_on_device, result)

            return launch

    module = ModuleType("torch_neuronx")
    module.wrap_nki = Wrapped
    sys.modules["torch_neuronx"] = module
    return launches


def _run_on_cpu(operator, *arguments, **options):
    if operator is torch.ops.aten._copy_from.default:
        source, destination = arguments[:2]
        _on_cpu(destination).copy_(_on_cpu(source))
        return destination
    before = tree_leaves((arguments, options))
    if options.get("device") is not None:
        options = {**options, "device": torch.device("cpu")}
    arguments, options = tree_map(_on_cpu, (arguments, options))
    after = tree_leaves((arguments, options))
    result = operator(*arguments, **options)

    def back(value):
        if not isinstance(value, torch.Tensor):
            return value
        for ours, theirs in zip(before, after, strict=True):
            if theirs is value:  # an operation in place
                return ours
        for ours in before:
            if _is_on_device(ours) and _shares_memory(value, _memory_of(ours)):
                return _view(ours, value)
        return _on_device(value)

    return tree_map(back, result)


def _is_on_device(value):
    return isinstance(value, torch.Tensor) and value.device.type == "neuron"


def _shares_memory(one, other):
    return one.numel() > 0 and (
        one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
    )


def _memory_of(tensor):
    return _memory[tensor.untyped_storage()._cdata]


def _on_cpu(value):
    """The CPU memory behind a device tensor, with its shape and strides; other values as is."""
    if not _is_on_device(value):
        return value
    return _memory_of(value).as_strided(value.shape, value.stride(), value.storage_offset())


def _on_device(value):
    """A device tensor over the memory of a CPU tensor; other values as is."""
    if not isinstance(value, torch.Tensor):
        return value
    value = value.detach()
    flat = torch.empty(0, dtype=value.dtype).set_(value.untyped_storage())
    tensor = torch._C._acc.create_empty_tensor([flat.numel()], value.dtype)
    _memory[tensor.untyped_storage()._cdata] = flat
    return _view(tensor, value)


def _view(tensor, like):
    # The kernel of the meta device sets sizes and strides and touches no memory.
    return torch.ops.aten.as_strided.default._op_dk(
        torch._C.DispatchKey.Meta,
        tensor,
        list(like.shape),
        list(like.stride()),
        like.storage_offset(),
    )
