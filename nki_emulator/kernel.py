"""`nki.jit` and `nki.simulate`: running a kernel function in a session."""

import functools
import inspect

import numpy as np

from .errors import NkiArgumentError, NkiValidationError
from .host import Arguments, require_same_results
from .programs import Launch
from .regions import MemoryRegion
from .report import MemoryReport
from .schedule import Schedule
from .session import Session, active_session, enter, leave
from .targets import selected_target
from .threads import single_threaded_blas
from .tracebacks import kernel_errors


class Kernel:
    """A kernel function that runs on the emulator when it is called.

    Called inside a running kernel it is an ordinary function. ``kernel[lnc]`` sets the LNC degree,
    ``kernel.with_schedule(edges)`` adds scheduling dependencies.
    """

    def __init__(self, function, lnc=None, schedule=None):
        functools.update_wrapper(self, function)
        self.function = function
        self.lnc = lnc
        self.schedule = schedule
        self._signature = inspect.signature(function)

    def __getitem__(self, lnc):
        """The kernel for an LNC degree: 1 or 2."""
        if isinstance(lnc, bool) or lnc not in (1, 2):
            raise NkiArgumentError(
                "lnc", f"{self.__name__}[{lnc!r}]; the LNC degree is 1 or 2, one number."
            )
        return Kernel(self.function, lnc, self.schedule)

    def with_schedule(self, schedule):
        """The kernel with dependencies between named instructions.

        ``schedule`` is a list of pairs (consumer, producer) or (consumer, [producer, ...]) of the
        names that instructions get with ``name=``. The result does not change; the schedule is
        checked when the kernel has run.
        """
        return Kernel(self.function, self.lnc, Schedule(schedule))

    @kernel_errors
    def __call__(self, *arguments, **keywords):
        if active_session() is not None:
            return self.function(*arguments, **keywords)
        return self.launch(arguments, keywords)[0]

    def launch(self, arguments, keywords, trace=False, watch_memory=False):
        """Run in new sessions, one a program; returns (result, sessions).

        The result is program 0's; both programs must return the same tensors.
        """
        trace = trace or self.schedule is not None
        programs = self.lnc or 1
        if programs == 1:
            launch = _SingleProgram(Session(has_grid=self.lnc is not None, trace=trace))
        else:
            self._require_two_cores()
            launch = Launch(trace)
        sessions = launch.sessions
        if watch_memory:
            for session in sessions:
                session.sbuf.watched = session.psum.watched = True
        bound = self._bind(arguments, keywords)
        host = Arguments(sessions[0], launch.argument_buffer)
        # Each program gets containers of its own, so that one cannot change the other's.
        calls = {session: self._wrapped(bound, host) for session in sessions}
        launch.share_arguments(host.storages())

        def run_program(session):
            token = enter(session)
            try:
                # The engines follow IEEE rules and raise no floating point exceptions.
                with np.errstate(all="ignore"), single_threaded_blas():
                    result = call_kernel_function(self.function, calls[session])
                    if session.dynamic is not None:
                        session.dynamic.finish(result)
                    return result
            finally:
                leave(token)

        results = launch.run(run_program)
        if self.schedule is not None:
            for session in sessions:
                self.schedule.check(session.trace)
        require_same_results(results)
        result = host.unwrap(results[0])
        host.write_back()
        return result, sessions

    def _require_two_cores(self):
        target = selected_target()
        if target.generation < 3:
            raise NkiValidationError(
                "target",
                f"{self.__name__}[2]: two cores share HBM on NeuronCore-v3 and newer; the target "
                f"is {target.name}.",
            )

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

    def _wrapped(self, bound, host):
        """The arguments as the kernel sees them."""
        wrapped = {}
        for name, value in bound.arguments.items():
            kind = self._signature.parameters[name].kind
            if kind is inspect.Parameter.VAR_KEYWORD:
                wrapped[name] = {key: host.wrap(item, key) for key, item in value.items()}
            else:
                wrapped[name] = host.wrap(value, name)
        return inspect.BoundArguments(self._signature, wrapped)


class _SingleProgram:
    """A launch on one core."""

    argument_buffer = MemoryRegion.private_hbm

    def __init__(self, session):
        self.sessions = [session]

    def share_arguments(self, storages):
        """There is nobody to share with."""

    def run(self, body):
        """Run ``body(session)``; returns its result in a list."""
        return [body(self.sessions[0])]


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
    """Like :func:`simulate`, with a callable that returns (result, session) and keeps a trace.

    The session of an LNC 2 launch is program 0's.
    """
    kernel = jit(kernel)

    @kernel_errors
    def run(*arguments, **keywords):
        result, sessions = kernel.launch(arguments, keywords, trace=True)
        return result, sessions[0]

    return run


def memory_report(kernel):
    """A callable that runs ``kernel`` and returns a :class:`~.report.MemoryReport`.

    It tells how many bytes of a partition of SBUF and PSUM the kernel used at its peak, and which
    tiles those were. ``memory_report(kernel[2])`` reports both programs.
    """
    kernel = jit(kernel)

    @kernel_errors
    def run(*arguments, **keywords):
        _, sessions = kernel.launch(arguments, keywords, watch_memory=True)
        return MemoryReport.of(kernel.__name__, sessions)

    return run
