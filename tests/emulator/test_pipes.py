"""Commands end quietly when nobody reads their output any more."""

import os
import subprocess
import sys

import pytest

from nki_emulator import pipes

COMMANDS = (
    ["nki_emulator", "rules"],
    ["nki_emulator", "check", "--rules"],
    ["bench", "--list"],
    ["hub", "public-api"],
)


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("options", [[], ["-u"]], ids=["buffered", "unbuffered"])
def test_a_reader_that_leaves_is_no_error(arguments, options):
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, *options, "-m", *arguments],
        stdout=writer, stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    os.close(writer)
    assert done.stderr == ""
    assert done.returncode == pipes.READER_GONE


def test_another_pipe_that_breaks_is_an_error():
    @pipes.quiet
    def main():
        raise BrokenPipeError("a connection")

    with open(os.devnull, "w") as output, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", output)
        with pytest.raises(BrokenPipeError, match="a connection"):
            main()
