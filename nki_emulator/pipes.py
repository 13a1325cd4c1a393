"""Commands whose output is read in part: `python -m nki_emulator rules | head -3` ends quietly."""

import functools
import os
import select
import sys

# What a shell reports of a command that SIGPIPE ended: 128 + 13.
READER_GONE = 141


def quiet(main):
    """Decorate a command's ``main``: once nobody reads standard output it ends with status 141.

    For commands alone, not for scripts of others, whose BrokenPipeError is theirs. A pipe or
    connection other than standard output that breaks is an error as before.
    """

    @functools.wraps(main)
    def command(*arguments):
        try:
            try:
                return main(*arguments)
            finally:
                # What is still buffered is written here and not when Python ends.
                sys.stdout.flush()
        except BrokenPipeError:
            if not _reader_is_gone():
                raise
            # Python flushes standard output once more at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return READER_GONE

    return command


def _reader_is_gone():
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return any(state & (select.POLLERR | select.POLLHUP) for _, state in poll.poll(0))
