"""`nki.jit` and `nki.simulate`: running a kernel function in a session."""

import functools
import inspect

import numpy as np

from .errors import NkiArgumentError, NkiValidationError
from .host import Arguments
from .session import Session, active_session, enter, leave
from .threads import single_threaded_blas


class Kernel:
    """A kernel function that runs on the emulator when it is called.

    Called inside a running kernel it is an ordinary function. ``kernel[lnc]`` sets the LNC degree.
    """

    def __init__(self, function, lnc=None):
        functools.update_wrapper(self, function)
        self.function = function
        self.lnc = lnc
        self._signature = inspect.signature(function)

    def __getitem__(self, lnc):
        """The kernel for an LNC degree: 1 or 2."""
        if isinstance(lnc, bool) or lnc not in (1, 2):
            raise NkiArgumentError(
                "lnc", f"{self.__name__}[{lnc!r}]; the LNC degree is 1 or 2, one number."
            )
        return Kernel(self.function, lnc)

    def __call__(self, *arguments, **keywords):
        if active_session() is not None:
            return self.function(*arguments, **keywords)
        return self.run(arguments, keywords)[0]

    def run(self, arguments, keywords, trace=False):
        """Run in a new session; returns (result, session).

        An LNC 2 launch runs its two programs one after the other on the same shared HBM; the
        session returned is the first program's. What needs both at once (`sendrecv`,
        `core_barrier`) is not implemented, and a race between them is not detected.
        """
        programs = self.lnc or 1
        sessions = [
            Session(program, programs, has_grid=self.lnc is not None, trace=trace)
            for program in range(programs)
        ]
        bound = self._bind(arguments, keywords)
        host = Arguments(sessions[0])
        for name, value in bound.arguments.items():
            kind = self._signature.parameters[name].kind
            if kind is inspect.Parameter.VAR_KEYWORD:
                value = {key: host.wrap(item, key) for key, item in value.items()}
            else:
                value = host.wrap(value, name)
            bound.arguments[name] = value
        results = []
        for session in sessions:
            session.join(sessions[0])
            token = enter(session)
            try:
                # The engines follow IEEE rules and raise no floating point exceptions.
                with np.errstate(all="ignore"), single_threaded_blas():
                    results.append(call_kernel_function(self.function, bound))
            finally:
                leave(token)
        result = host.unwrap(results[0])
        host.write_back()
        return result, sessions[0]

    def _bind(self, arguments, keywords):
        try:
            bound = self._signature.bind(*arguments, **keywords)
        except TypeError as error:
            raise NkiArgumentError(
                "arguments", f"{self.__name__}{self._signature}: {error}."
            ) from None
        for name, parameter in self._signature.parameters.items():
            default = parameter.default
            if name not in bound.arguments and default is not inspect.Parameter.empty:
                bound.arguments[name] = default
        return bound


def call_kernel_function(function, bound):
    """Enter the user's code. Error reports stop at this frame: what called it is not the kernel."""
    return function(*bound.args, **bound.kwargs)


def jit(fn=None, **kwargs):
    """Make a top-level kernel of ``fn``; usable with and without parentheses.

    ``mode`` is accepted and ignored, ``platform_target`` is an error (both since NKI 0.3).
    """
    if "platform_target" in kwargs:
        raise NkiValidationError(
            "jit-arguments",
            "jit(platform_target=...) was removed in NKI 0.3; set the environment variable "
            "NEURON_PLATFORM_TARGET_OVERRIDE.",
        )
    unknown = sorted(set(kwargs) - {"mode"})
    if unknown:
        raise NkiValidationError("jit-arguments", f"jit takes no argument {unknown[0]!r}.")
    if fn is None:
        return jit
    return fn if isinstance(fn, Kernel) else Kernel(fn)


def simulate(kernel):
    """A callable that runs ``kernel`` (jitted or plain function) on the CPU."""
    return jit(kernel)


def record(kernel):
    """Like :func:`simulate`, with a callable that returns (result, session) and keeps a trace."""
    kernel = jit(kernel)
    return lambda *arguments, **keywords: kernel.run(arguments, keywords, trace=True)
