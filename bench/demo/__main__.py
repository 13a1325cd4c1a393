"""The demo: a kernel package published, loaded, and run in real models on this machine's CPU.

`python -m bench.demo` in a checkout. Builds the package and publishes it to a Hub on the loopback
address; a new process loads it from there and does the rest (bench/demo/worker.py). Ends with
"demo: ok" and status 0 only when every requirement of bench/demo/gate.py holds.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.demo.gate import REQUIREMENTS, failures
from tests.hub_server import LoopbackHub, client_environment

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Run the demo; return the exit status."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="neuron-vit-demo-") as scratch, LoopbackHub() as hub:
        folder = Path(scratch)
        environment = client_environment(hub.url, folder / "hf_home")
        print("Publish the kernel package to a Hub on this machine and load it from there")
        print("-" * 74)
        try:
            _run("publisher", environment, ROOT, folder / "build")
            _run("worker", environment, folder / "figures.json")
            figures = json.loads((folder / "figures.json").read_text(encoding="utf-8"))
        except subprocess.CalledProcessError as error:
            print(f"\ndemo: failed: {' '.join(error.cmd)} ended with status {error.returncode}")
            return 1
    figures["seconds"] = time.perf_counter() - start
    return conclude(figures)


def conclude(figures: dict) -> int:
    """Print the verdict on `figures`; return the exit status."""
    failed = failures(figures)
    print(
        f"\n{len(REQUIREMENTS) - len(failed)} of {len(REQUIREMENTS)} requirements hold; "
        f"{figures.get('seconds', 0.0):.0f} s in all"
    )
    for line in failed:
        print(f"  failed: {line}")
    print("demo: failed" if failed else "demo: ok")
    return 1 if failed else 0


def _run(module: str, environment: dict[str, str], *arguments: Path) -> None:
    """Run a module of the demo in a new process, in the checkout."""
    sys.stdout.flush()
    command = [sys.executable, "-m", f"bench.demo.{module}", *map(str, arguments)]
    subprocess.run(command, env=environment, cwd=ROOT, check=True)


if __name__ == "__main__":
    sys.exit(main())
