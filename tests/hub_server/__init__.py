"""A Hub on this machine's loopback address, for the real clients to talk to.

It implements the part of the Hub's REST interface that `HfApi`, the `hf` command and
`kernels.get_kernel` use for repositories of type "kernel". Everything lives in memory; it listens
on 127.0.0.1 only, on a port the system chooses.

    with serve() as url:                                     # or LoopbackHub(...) for its state
        HfApi(endpoint=url).create_repo("org/name", repo_type="kernel")
        subprocess.run(command, env=client_environment(url, home))

The clients read `HF_ENDPOINT` when they are imported, so code that finds the Hub through that
variable has to run in a process started with `client_environment`.
"""

from tests.hub_server.environment import client_environment
from tests.hub_server.server import LoopbackHub, serve

__all__ = ["LoopbackHub", "client_environment", "serve"]
