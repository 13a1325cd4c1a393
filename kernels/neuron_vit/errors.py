"""What the package raises and warns with."""


class NeuronVitUnsupported(RuntimeError):
    """A case that the NKI kernels do not cover, where nothing else was allowed to run."""


class NeuronVitFallbackWarning(UserWarning):
    """A call meant for an NKI kernel ran as PyTorch operations; the message says why."""
