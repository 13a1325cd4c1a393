"""The loopback Hub's state: repositories, branches, commits and the files in them."""

import base64
import hashlib
from dataclasses import dataclass, field


class HubError(Exception):
    """A refusal, in the form in which the Hub sends it.

    The clients choose the exception they raise by `code` (the X-Error-Code header), so that
    "RepoNotFound", "RevisionNotFound" and "EntryNotFound" have to be spelled exactly so.
    `details` are further fields of the answer.
    """

    def __init__(self, status: int, code: str, message: str, **details: str):
        super().__init__(message)
        self.status = status
        self.code = code
        self.details = details


def blob_id(content: bytes) -> str:
    """Return git's name for a file with this content."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@dataclass(frozen=True)
class Commit:
    """One state of a repository: `files` maps each path to its content."""

    sha: str
    message: str
    files: "dict[str, bytes]"


@dataclass
class Repository:
    """A repository of type "kernel" with its branches; `commits` is in order of creation."""

    name: str
    branches: "dict[str, str]" = field(default_factory=dict)
    commits: "dict[str, Commit]" = field(default_factory=dict)

    def commit(self, branch: str, files: "dict[str, bytes]", message: str) -> Commit:
        """Record `files` as the new head of `branch` and return the commit."""
        parent = self.branches.get(branch, "")
        listing = "\n".join(f"{blob_id(content)} {path}" for path, content in sorted(files.items()))
        text = f"{len(self.commits)}\n{parent}\n{message}\n{listing}"
        commit = Commit(hashlib.sha1(text.encode()).hexdigest(), message, dict(files))
        self.commits[commit.sha] = commit
        self.branches[branch] = commit.sha
        return commit

    def resolve(self, revision: str) -> Commit:
        """Return the commit that a branch, by name or full name, or a full commit id stands for."""
        sha = self.branches.get(revision.removeprefix("refs/heads/"), revision)
        if sha not in self.commits:
            raise HubError(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return self.commits[sha]

    def create_branch(self, branch: str, starting_point: str) -> None:
        """Point a new `branch` at `starting_point`; 409 if there is one of that name."""
        if branch in self.branches:
            raise HubError(409, "", f"Reference already exists: {branch}")
        self.branches[branch] = self.resolve(starting_point).sha

    def apply(self, branch: str, operations: "list[dict]", message: str) -> Commit:
        """Commit file additions and deletions, given as the Hub's ndjson lines, on `branch`."""
        if branch not in self.branches:
            raise HubError(404, "RevisionNotFound", f"Invalid rev id: {branch}")
        files = dict(self.resolve(branch).files)
        for operation in operations:
            kind, value = operation["key"], operation["value"]
            if kind == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif kind == "deletedFile":
                if files.pop(value["path"], None) is None:
                    reason = f"A file with this name doesn't exist: {value['path']}"
                    raise HubError(404, "EntryNotFound", reason)
            elif kind == "deletedFolder":
                prefix = value["path"].rstrip("/") + "/"
                files = {path: data for path, data in files.items() if not path.startswith(prefix)}
            else:
                raise HubError(400, "", f"The loopback Hub does not take {kind!r} operations")
        return self.commit(branch, files, message)

    def tree(self, revision: str, folder: str, recursive: bool) -> "list[dict]":
        """List the files and folders under `folder` ("" is the root) as the Hub describes them."""
        prefix = f"{folder}/" if folder else ""
        files = self.resolve(revision).files
        entries: dict[str, dict] = {}
        for path, content in files.items():
            if not path.startswith(prefix):
                continue
            parts = path[len(prefix) :].split("/")
            depth = len(parts) if recursive else 1
            for level in range(1, min(depth, len(parts) - 1) + 1):
                name = prefix + "/".join(parts[:level])
                oid = hashlib.sha1(f"{revision}:{name}".encode()).hexdigest()
                entries[name] = {"type": "directory", "oid": oid, "size": 0, "path": name}
            if len(parts) <= depth:
                entries[path] = {
                    "type": "file",
                    "oid": blob_id(content),
                    "size": len(content),
                    "path": path,
                }
        if folder and not entries:
            raise HubError(404, "EntryNotFound", f"{folder} does not exist on {revision}")
        return [entries[name] for name in sorted(entries)]
