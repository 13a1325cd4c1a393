"""Publishes a built folder to the Hub, as its own builder would.

The card becomes README.md on branch main; variants and benchmarks go to branch v<version>, in one
commit, so that nobody can load half of a release. A file that is already there with the same
content is left alone, and a publication that would change nothing makes no commit.
"""

from dataclasses import dataclass, field
from pathlib import Path

import httpx2  # what huggingface_hub speaks HTTP with
from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
from huggingface_hub.errors import HfHubHTTPError
from kernels._rust import Metadata

from hub.check import check
from hub.provenance import GitState

_REPO_TYPE = "kernel"
_CARD = "README.md"


class PublishError(Exception):
    """Why a build was not published, and what to do."""


@dataclass
class Publication:
    """What a publication puts where, and what it changed.

    `files` maps each path in the repository to the local file; the card belongs on main, all
    others on `branch`. `commits` are the ids of the commits that were made, by branch: empty if
    everything was there already, or for a dry run.
    """

    repo_id: str
    branch: str
    files: dict[str, Path]
    dry_run: bool
    commits: dict[str, str] = field(default_factory=dict)


def publish(
    folder: Path,
    repo_id: str,
    *,
    api: HfApi | None = None,
    allow_dirty: bool = False,
    dry_run: bool = False,
) -> Publication:
    """Publish the build in `folder` as the kernel `repo_id` ("organisation/name").

    `api` says which Hub and whose token; by default the environment does. With `dry_run` nothing
    is asked of the Hub. A build that was not made from a clean git checkout is refused unless
    `allow_dirty`, because nobody could tell later what it was made from.
    Raises PublishError if the build fails its checks or the Hub refuses it.
    """
    findings = check(folder)
    if findings:
        listed = "\n".join(f"  {finding}" for finding in findings)
        raise PublishError(f"{folder} does not pass its checks:\n{listed}")
    variants, metadata = _read_metadata(folder)
    if not allow_dirty:
        _check_provenance(metadata)

    publication = Publication(
        repo_id=repo_id,
        branch=f"v{metadata[0].version}",
        files=_files(folder, variants),
        dry_run=dry_run,
    )
    if not dry_run:
        api = api or HfApi()
        try:
            _upload(publication, api)
        except HfHubHTTPError as error:
            raise _refusal(repo_id, error) from error
        except httpx2.TransportError as error:
            raise PublishError(
                f"the Hub at {api.endpoint} cannot be reached: {error}\nPublish again when it can: "
                "what has arrived by then is left alone."
            ) from error
    return publication


def check_checkout(folder: Path, git: GitState | None) -> None:
    """Raise PublishError unless the build in `folder` is that of the checkout in state `git`.

    None is a folder that is no git checkout, of which nothing can be said.
    """
    if git is None:
        return
    if git.dirty:
        raise PublishError(
            "the checkout has uncommitted changes; commit them and build again "
            "(--allow-dirty publishes anyway)"
        )
    for variant in _read_metadata(folder)[1]:
        built = variant.provenance and variant.provenance.kernel
        if built and built.commit != git.commit:
            raise PublishError(
                f"the build was made from commit {built.commit}, the checkout is at "
                f"{git.commit}; build again"
            )


def _read_metadata(folder: Path) -> tuple[list[Path], list[Metadata]]:
    variants = sorted(path for path in folder.glob("torch-*") if path.is_dir())
    return variants, [Metadata.read_from_file(path / "metadata.json") for path in variants]


def _check_provenance(metadata: list[Metadata]) -> None:
    for variant in metadata:
        kernel = variant.provenance.kernel
        if kernel is None:
            raise PublishError(
                "the build does not say which commit it was made from; build it "
                "in a git checkout (--allow-dirty publishes anyway)"
            )
        if kernel.dirty:
            raise PublishError(
                f"the build was made from commit {kernel.commit} with uncommitted changes; commit "
                "them and build again (--allow-dirty publishes anyway)"
            )


def _files(folder: Path, variants: list[Path]) -> dict[str, Path]:
    card = folder / "CARD.md"
    if not card.is_file():
        raise PublishError(f"{folder} holds no CARD.md, the page of the repository; build again")
    sources = {_CARD: card}
    for variant in variants:
        for path in sorted(variant.rglob("*")):
            if path.is_file():
                sources[f"build/{path.relative_to(folder).as_posix()}"] = path
    for path in sorted(folder.glob("benchmarks/benchmark*.py")):
        sources[path.relative_to(folder).as_posix()] = path
    return sources


def _upload(publication: Publication, api: HfApi) -> None:
    repository = {"repo_id": publication.repo_id, "repo_type": _REPO_TYPE}
    # Whoever may write to a repository need not be allowed to make one.
    if not api.repo_exists(**repository):
        api.create_repo(**repository)
    card = {_CARD: publication.files[_CARD]}
    _commit(publication, api, "main", card, stale=[])

    # A new branch starts as a copy of main, and so holds the card as well.
    api.create_branch(**repository, branch=publication.branch, exist_ok=True)
    rest = {path: file for path, file in publication.files.items() if path != _CARD}
    there = api.list_repo_files(**repository, revision=publication.branch)
    stale = [
        path
        for path in there
        if path.startswith(("build/", "benchmarks/benchmark")) and path not in rest
    ]
    _commit(publication, api, publication.branch, rest, stale)


def _commit(
    publication: Publication, api: HfApi, branch: str, files: dict[str, Path], stale: list[str]
) -> None:
    """Bring `files` to `branch` and remove `stale` from it; note the commit if one was made."""
    repository = {"repo_id": publication.repo_id, "repo_type": _REPO_TYPE}
    refs = api.list_repo_refs(**repository)
    before = next(ref.target_commit for ref in refs.branches if ref.name == branch)
    # The client drops additions that change nothing, and then a commit that is empty.
    commit = api.create_commit(
        **repository,
        revision=branch,
        operations=[
            *(CommitOperationAdd(path, file) for path, file in files.items()),
            *(CommitOperationDelete(path) for path in stale),
        ],
        commit_message=f"Publish {publication.branch}",
    )
    if commit.oid != before:
        publication.commits[branch] = commit.oid


def _refusal(repo_id: str, error: HfHubHTTPError) -> PublishError:
    organisation = repo_id.split("/")[0]
    advice = {
        401: "Log in with `hf auth login`, with a token that may write.",
        403: f"The token needs write access to {organisation}, and {organisation} needs the right "
        "to create kernels, which its administrators request on the Hub.",
        404: f"There is no such repository that this token may see. Check the name, and that the "
        f"token belongs to a member of {organisation}.",
    }.get(error.response.status_code, "")
    return PublishError(f"the Hub refused to publish {repo_id}: {error}\n{advice}".rstrip())
