"""The command line: ``python -m nki_emulator check PATH...``."""

import argparse
import json
import sys

from ..pipes import quiet
from .findings import CheckError
from .program_check import check_program
from .rules import rules_text

OK, FOUND, UNUSABLE = 0, 1, 2


def parser():
    result = argparse.ArgumentParser(
        prog="python -m nki_emulator check",
        description="Check NKI kernels against the rules of the NKI 0.6 language, without running "
        "them. Exits with 0 if no rule is broken (warnings are printed), 1 if one is, 2 if a path "
        "cannot be checked.",
    )
    result.add_argument("paths", nargs="*", metavar="PATH", help="a Python file or a folder")
    result.add_argument("--json", action="store_true", help="write the findings as JSON")
    result.add_argument("--rules", action="store_true", help="print the table of rules and exit")
    return result


@quiet
def main(arguments=None):
    """Run the checker on command-line ``arguments`` (sys.argv if None); returns the exit code."""
    options = parser().parse_args(arguments)
    if options.rules:
        print(rules_text())
        return OK
    if not options.paths:
        print("no PATH given; name a Python file or a folder that has kernels", file=sys.stderr)
        return UNUSABLE
    try:
        result = check_program(options.paths)
    except CheckError as error:
        print(error, file=sys.stderr)
        return UNUSABLE
    if result.kernels == 0:
        print(
            f"{', '.join(options.paths)}: no kernel, that is, no function with @nki.jit; "
            "name a file or folder that has one",
            file=sys.stderr,
        )
        return UNUSABLE
    errors = [finding for finding in result.findings if finding.is_error]
    if options.json:
        print_json(result, errors)
    else:
        print_text(result, errors)
    return FOUND if errors else OK


def print_json(result, errors):
    content = {
        "kernels": result.kernels,
        "functions": result.functions,
        "errors": len(errors),
        "warnings": len(result.findings) - len(errors),
        "findings": [finding.as_dict() for finding in result.findings],
    }
    print(json.dumps(content, indent=2))


def print_text(result, errors):
    for finding in result.findings:
        print(finding)
    warnings = len(result.findings) - len(errors)
    if errors or warnings:
        print(f"{count(errors, 'error')}, {warnings} warning{'' if warnings == 1 else 's'}")
    if not errors:
        print("ok")


def count(items, name):
    return f"{len(items)} {name}{'' if len(items) == 1 else 's'}"
