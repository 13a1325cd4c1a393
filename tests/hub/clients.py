"""Client processes of the loopback Hub, each as if newly started.

Importing torch, and what torch imports when an operator runs, takes most of a client's time.
`ClientProcesses` therefore does it once, in a process from which the clients are forked. That
process has neither kernels nor huggingface_hub loaded: a client imports them itself, and so reads
its own environment and starts with no state.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

# Reads a request a line, runs its code in a fork, and answers with the exit status.
_TEMPLATE = """
import json, os, sys, traceback
import torch

def identity(x: torch.Tensor) -> torch.Tensor:
    return x.clone()

torch.library.custom_op("clients::identity", identity, mutates_args=())(torch.ones(1))

def run(request):
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(request[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    sys.argv = request["arguments"]
    try:
        exec(compile(request["code"], "<client>", "exec"), {"__name__": "__main__"})
        return 0
    except SystemExit as error:
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1

for line in sys.stdin:
    child = os.fork()
    if not child:
        status = run(json.loads(line))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""

# What code for `Client.__call__` starts with; `show` prints what the test reads.
PREAMBLE = """
import json, sys, types
import torch

def show(**values):
    print(json.dumps(values))

def failure(function, *arguments, **options):
    try:
        function(*arguments, **options)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"
"""


class ClientProcesses:
    """A context manager that holds the process the clients are forked from."""

    def __enter__(self):
        self._process = subprocess.Popen(
            [sys.executable, "-c", _TEMPLATE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # so that a client that hangs can be ended with it
        )
        return self

    def __exit__(self, *exception):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()

    def run(self, code, arguments, environment, folder):
        """Run `code` in a client that starts in `folder`; return what became of it."""
        streams = {name: Path(folder).parent / f"client.{name}" for name in ("stdout", "stderr")}
        request = {
            "code": code,
            "arguments": arguments,
            "environment": environment,
            "folder": str(folder),
            **{name: str(path) for name, path in streams.items()},
        }
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        status = int(self._process.stdout.readline())
        texts = {name: path.read_text() for name, path in streams.items()}
        return subprocess.CompletedProcess(arguments, status, **texts)


class Client:
    """A user with an empty cache, whose processes share it.

    `home` is the user's HF_HOME and `folder` where the processes start, empty at first.
    """

    def __init__(self, processes, environment, folder):
        self._processes = processes
        self._environment = environment
        self.folder = folder
        folder.mkdir()

    def __call__(self, code, **environment):
        """Run Python code, with these variables set as well, and return what it showed."""
        run = self._run(PREAMBLE + code, ["client"], environment)
        assert run.returncode == 0, run.stderr
        return json.loads(run.stdout.splitlines()[-1])

    def kernels(self, *arguments, before="", **environment):
        """Run the `kernels` command; the code `before` comes first in its process."""
        code = f"{before}\nfrom kernels.cli import main\nmain()\n"
        return self._run(code, ["kernels", *arguments], environment)

    def hf(self, *arguments):
        """Run the `hf` command."""
        code = "from huggingface_hub.cli.hf import main\nmain()\n"
        return self._run(code, ["hf", *arguments], {})

    def _run(self, code, arguments, environment):
        environment = {**self._environment, **environment}
        return self._processes.run(code, arguments, environment, self.folder)
