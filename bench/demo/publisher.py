"""The maintainer's half of the demo: `python -m bench.demo.publisher ROOT OUT`.

Builds every Hub variant of the checkout ROOT into the folder OUT and publishes them to the Hub that
the environment names.
"""

from __future__ import annotations

import sys
from pathlib import Path

from hub.build import build
from hub.manifest import read_manifest
from hub.publish import publish


def main() -> None:
    root, out = (Path(argument) for argument in sys.argv[1:])
    variants = build(root, out)
    print(f"built and checked  {', '.join(variant.name for variant in variants)}")
    # A checkout with local changes may be demonstrated too.
    publication = publish(out, read_manifest(root).repo_id, allow_dirty=True)
    size = sum(file.stat().st_size for file in publication.files.values())
    print(
        f"published          {publication.repo_id}: {len(publication.files)} files, "
        f"{size / 1e6:.2f} MB"
    )
    for branch, commit in publication.commits.items():
        print(f"                   branch {branch}, commit {commit[:10]}")


if __name__ == "__main__":
    main()
