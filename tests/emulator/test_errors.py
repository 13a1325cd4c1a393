"""What an error tells: rule, kernel line, call chain, instruction and operands."""

import pickle

from nki_emulator import (
    NkiArgumentError,
    NkiCapacityError,
    NkiError,
    NkiNotImplemented,
    NkiUninitializedRead,
    NkiValidationError,
)  # fmt: skip

from .support import nisa, nki, nl, refused, simulate, tile


def innermost(t):
    nisa.tensor_copy(dst=t, src=tile((4, 3)))  # rule


def middle(t):
    innermost(t)  # middle


def test_the_chain_holds_the_kernel_and_nothing_of_the_emulator_or_the_caller():
    def kernel():
        middle(tile((4, 4), value=0.0))  # outer

    error = refused("free-size", kernel)
    assert [line.function for line in error.chain] == ["innermost", "middle", "kernel"]
    assert ["# rule", "# middle", "# outer"] == [
        "# " + line.text.rsplit("# ", 1)[1] for line in error.chain
    ]
    assert error.location is error.chain[0]
    text = str(error)
    assert "nki_emulator" not in text and "pytest" not in text
    assert text.count("test_errors.py:") == 3


def test_operands_are_described():
    def kernel():
        t = nl.ndarray((4, 4), dtype=nl.bfloat16, buffer=nl.psum, name="acc")
        innermost(t)

    text = str(refused("free-size", kernel))
    assert "in nisa.tensor_copy(dst=bfloat16[4, 4] psum 'acc', src=float32[4, 3] sbuf)" in text


def test_numbers_among_the_operands_are_left_out():
    def kernel():
        t = tile((4, 4))
        nisa.tensor_scalar(dst=t, data=t, op0=nl.exp, operand0=1.0)

    text = str(refused("operator", kernel, line="nisa.tensor_scalar"))
    assert "in nisa.tensor_scalar(dst=float32[4, 4] sbuf, data=float32[4, 4] sbuf)" in text


def test_one_base_class():
    for kind in (NkiValidationError, NkiCapacityError, NkiUninitializedRead, NkiArgumentError,
                 NkiNotImplemented):  # fmt: skip
        assert issubclass(kind, NkiError)
    assert issubclass(NkiArgumentError, TypeError)
    assert issubclass(NkiNotImplemented, NotImplementedError)
    assert nisa.NkiValidationError is NkiValidationError


def test_errors_of_the_kernel_itself_pass_unchanged():
    def kernel():
        assert 1 > 2, "the kernel's own check"

    try:
        simulate(kernel)()
    except AssertionError as error:
        assert "the kernel's own check" in str(error)
    else:
        raise AssertionError("the kernel's assertion was swallowed")


def test_errors_travel_between_processes():
    """Parallel test runners pickle what a test raises."""

    def kernel():
        innermost(tile((4, 4)))

    error = refused("free-size", kernel)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error) and str(copy) == str(error) and copy.rule == "free-size"
    missing = refused(
        "not-implemented", lambda: nki.collectives.all_reduce([], [], None, nl.add), line=None
    )
    assert str(pickle.loads(pickle.dumps(missing))) == str(missing)
