"""The environment in which a client process reaches the loopback Hub and nothing else."""

import os
from pathlib import Path

# With telemetry off, kernels 0.17 sends a User-Agent header that ends in a blank, and its HTTP
# library refuses every request. The others would redirect or short-cut what a test exercises.
_REMOVED = (
    "DISABLE_TELEMETRY",
    "DO_NOT_TRACK",
    "HF_HUB_DISABLE_TELEMETRY",
    "HF_HUB_OFFLINE",
    "HF_TOKEN",
    "HUGGING_FACE_HUB_TOKEN",
    "HF_HUB_CACHE",
    "HUGGINGFACE_HUB_CACHE",
    "KERNELS_CACHE",
    "LOCAL_KERNELS",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
)


def client_environment(url: str, home: "os.PathLike[str] | str") -> "dict[str, str]":
    """Return a copy of this process's environment for a client of the Hub at `url`.

    `home` becomes HF_HOME: an empty folder there means that nothing comes from a cache.
    """
    environment = {name: value for name, value in os.environ.items() if name not in _REMOVED}
    environment.update(
        HF_ENDPOINT=url,
        HF_HOME=str(Path(home)),
        HF_HUB_DISABLE_XET="1",  # large files go through xet otherwise, which has no server here
        HF_HUB_DISABLE_PROGRESS_BARS="1",
        HF_HUB_DISABLE_UPDATE_CHECK="1",
    )
    return environment
