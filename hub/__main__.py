"""Command line: build, check and publish the Hub variants, and keep track of the public API."""

import argparse
import json
import sys
from pathlib import Path

from hub.build import build
from hub.check import check
from hub.manifest import read_manifest
from hub.provenance import git_state
from hub.public_api import ApiError, check_api, read_api, record_api
from hub.publish import Publication, PublishError, check_checkout, publish
from nki_emulator.pipes import quiet


@quiet
def main(arguments: list[str] | None = None) -> int:
    """Run one command; return the exit status."""
    options = _parser().parse_args(arguments)
    try:
        return options.run(options)
    except (ApiError, FileNotFoundError, PublishError, ValueError) as error:
        print(f"neuron-vit-hub: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="neuron-vit-hub", description=__doc__)
    parser.add_argument("--root", type=Path, default=Path(), help="checkout (default: here)")
    parser.add_argument("--out", type=Path, help="built folder (default: build in the checkout)")
    commands = parser.add_subparsers(required=True, metavar="command")

    command = commands.add_parser("build", help="build every variant")
    command.set_defaults(run=_build)

    command = commands.add_parser("check", help="check what was built")
    command.set_defaults(run=_check)

    command = commands.add_parser("publish", help="check what was built and publish it")
    command.add_argument("--repo-id", help="organisation/name (default: that of build.toml)")
    command.add_argument("--dry-run", action="store_true", help="only list what would be published")
    command.add_argument("--allow-dirty", action="store_true", help="even if not from a commit")
    command.set_defaults(run=_publish)

    command = commands.add_parser("public-api", help="print the public API as JSON")
    command.add_argument("--check", action="store_true", help="compare it with the record instead")
    command.add_argument("--record", action="store_true", help="record it instead")
    command.set_defaults(run=_public_api)
    return parser


def _out(options: argparse.Namespace) -> Path:
    return options.out or options.root / "build"


def _build(options: argparse.Namespace) -> int:
    for variant in build(options.root, _out(options)):
        print(variant)
    return 0


def _check(options: argparse.Namespace) -> int:
    findings = check(_out(options))
    for finding in findings:
        print(finding)
    count = "1 finding" if len(findings) == 1 else f"{len(findings)} findings"
    print(count if findings else "nothing found")
    return 1 if findings else 0


def _publish(options: argparse.Namespace) -> int:
    repo_id = options.repo_id or read_manifest(options.root).repo_id
    if not options.allow_dirty:
        check_checkout(_out(options), git_state(options.root))
    publication = publish(
        _out(options), repo_id, allow_dirty=options.allow_dirty, dry_run=options.dry_run
    )
    print(_summary(publication))
    return 0


def _public_api(options: argparse.Namespace) -> int:
    if options.record:
        print(f"recorded in {record_api(options.root)}")
        return 0
    if options.check:
        changes = check_api(options.root)
        print("\n".join(changes) or "as recorded")
        return 1 if changes else 0
    print(json.dumps(read_api(read_manifest(options.root).package), indent=2))
    return 0


def _summary(publication: Publication) -> str:
    verb = "would publish" if publication.dry_run else "published"
    lines = [f"{verb} {publication.repo_id}, {len(publication.files)} files:"]
    for path, file in publication.files.items():
        branch = "main" if path == "README.md" else publication.branch
        lines.append(f"  {branch:5} {file.stat().st_size:8} bytes  {path}")
    lines += [f"new commit on {branch}: {oid}" for branch, oid in publication.commits.items()]
    if not publication.dry_run and not publication.commits:
        lines.append("everything was there already; no commit was made")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
