"""Loops that run on the device: `nl.fori_loop`, `nl.while_loop`, `nl.dynamic_range`, and the
`nl.no_reorder` region, in which they are not allowed.

The chip has one copy of the body. The emulator calls the body once for each iteration and checks
that all iterations issue the same instructions (`iterations.py`). A loop that never runs is
therefore not checked.
"""

from .errors import NkiValidationError, warn
from .registers import VirtualRegister, is_integer, new_register, scalar
from .session import current_session

# A loop that reaches this many iterations is taken for one that never ends. The chip has no such
# limit; a kernel that needs more can set `nki_emulator.loops.MAX_ITERATIONS`.
MAX_ITERATIONS = 100_000


def fori_loop(lower, upper, body_fun, step):
    """Call ``body_fun(i)`` with a frozen register i = lower, lower + step, ... below upper."""
    session = _session("fori_loop")
    _callable(body_fun, "nl.fori_loop")
    values, loop = _counted(session, "fori_loop", lower, upper, step)
    runtime = session.runtime()
    for number, value in enumerate(values):
        runtime.begin(loop, number)
        result = body_fun(new_register(session, value, frozen=True))
        if result is not None:
            raise NkiValidationError(
                "fori-body-result",
                f"the body of nl.fori_loop returns {_shown(result)}; it must return nothing. Keep "
                f"results in SBUF or HBM.",
            )
        runtime.end()


def while_loop(init, body_fun):
    """While the register is not zero: register = body_fun(copy of the register)."""
    session = _session("while_loop")
    _callable(body_fun, "nl.while_loop")
    if not isinstance(init, VirtualRegister):
        raise NkiValidationError(
            "while-condition",
            f"init is {_shown(init)}; the condition is a register (nisa.register_alloc).",
        )
    runtime = session.runtime()
    loop = runtime.loop("while_loop", init=init)
    condition, number = scalar(init, "init"), 0
    while condition:
        if number == MAX_ITERATIONS:
            raise _endless("nl.while_loop", f"runs for more than {MAX_ITERATIONS} iterations")
        runtime.begin(loop, number)
        result = body_fun(new_register(session, condition))
        if not isinstance(result, VirtualRegister):
            raise NkiValidationError(
                "while-body-result",
                f"the body of nl.while_loop returns {_shown(result)}; it must return the register "
                f"that holds the next condition.",
            )
        condition = scalar(result, "the condition that the body returns")
        runtime.returned(result)
        runtime.end()
        number += 1


def dynamic_range(start, stop, step):
    """Iterator over frozen registers start, start + step, ... below stop."""
    warn("deprecated", "nl.dynamic_range: use nl.fori_loop.", DeprecationWarning)
    session = _session("dynamic_range")
    if stop is None:
        start, stop = 0, start
    return _iterate(session, start, stop, step)


def _iterate(session, start, stop, step):
    values, loop = _counted(session, "dynamic_range", start, stop, step)
    runtime = session.runtime()
    for number, value in enumerate(values):
        runtime.begin(loop, number)
        try:
            yield new_register(session, value, frozen=True)
        except GeneratorExit:
            # `break` or `return` in the body. Python drops an error raised here.
            runtime.abandon()
            raise
        runtime.end()


class NoReorder:
    """The region of `nl.no_reorder()`: instructions keep their order, dynamic loops are refused.

    The emulator runs in program order anyway.
    """

    def __init__(self):
        self._session = current_session("nl.no_reorder")

    def __enter__(self):
        self._session.no_reorder += 1

    def __exit__(self, *_):
        self._session.no_reorder -= 1


def _session(name):
    session = current_session(f"nl.{name}")
    if session.no_reorder:
        raise NkiValidationError(
            "no-reorder-loop",
            f"nl.{name} in an nl.no_reorder() region; dynamic loops are not supported there. Put "
            f"the region into the body of the loop.",
        )
    return session


def _counted(session, name, lower, upper, step):
    """The values of a counted loop, and the loop."""
    if isinstance(step, VirtualRegister) or not is_integer(step) or step < 1:
        raise NkiValidationError(
            "dynamic-loop-step",
            f"step={_shown(step)}; the step of a dynamic loop is a positive integer that is known "
            f"when the kernel is built.",
        )
    loop = session.runtime().loop(name, lower=lower, upper=upper, step=step)
    values = range(scalar(lower, "the lower bound"), scalar(upper, "the upper bound"), step)
    if len(values) > MAX_ITERATIONS:
        raise _endless(f"nl.{name}", f"has {len(values)} iterations, {values.start}..{values.stop}")
    return values, loop


def _endless(name, what):
    return NkiValidationError(
        "dynamic-loop-endless",
        f"{name} {what}, and the emulator stops at {MAX_ITERATIONS} "
        f"(nki_emulator.loops.MAX_ITERATIONS). Is the register that ends it what you expect?",
    )


def _callable(body, name):
    if not callable(body):
        raise NkiValidationError(
            "dynamic-loop-function", f"the body of {name} is {_shown(body)}; it must be a function."
        )


def _shown(value):
    return value.describe() if hasattr(value, "describe") else repr(value)
