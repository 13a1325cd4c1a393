"""Which commit a checkout stands at, whether it differs from that commit, and what git ignores."""

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class GitState:
    """A full commit id, and whether any file that git does not ignore differs from it."""

    commit: str
    dirty: bool


def git_state(root: Path) -> GitState | None:
    """Return the state of the git checkout whose top folder is `root`.

    None if `root` is not such a folder (an unpacked archive, or a folder inside another
    repository), has no commit yet, or git is not installed.
    """
    top = _git(root, "rev-parse", "--show-toplevel")
    commit = _git(root, "rev-parse", "--verify", "HEAD")
    if top is None or commit is None or Path(top).resolve() != root.resolve():
        return None
    return GitState(commit, dirty=_is_dirty(root))


def ignored_files(root: Path) -> frozenset[Path]:
    """Return the files in the checkout `root` that git ignores, resolved; none without git.

    They are in no commit and do not make a checkout dirty.
    """
    listed = _git(root, "ls-files", "--others", "--ignored", "--exclude-standard", "-z")
    return frozenset((root / name).resolve() for name in (listed or "").split("\0") if name)


def _is_dirty(root: Path) -> bool:
    # Said outright, because a user's own settings may hide untracked files.
    return _git(root, "status", "--porcelain", "--untracked-files=normal") != ""


def _git(root: Path, *arguments: str) -> str | None:
    try:
        run = subprocess.run(["git", "-C", root, *arguments], capture_output=True, text=True)
    except FileNotFoundError:
        return None
    return run.stdout.strip() if run.returncode == 0 else None
