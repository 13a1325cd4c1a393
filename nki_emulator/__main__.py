"""`python -m nki_emulator script.py [arguments]`: run a script whose `import nki` is the emulator.

The script runs as `__main__`, with its own directory first on the import path and its arguments in
`sys.argv`, as `python script.py` would run it, and a traceback begins at the script. The other
commands are in USAGE.
"""

import os
import runpy
import sys

from . import checker, install, pipes, rulebook, startup, tracebacks
from .checker.rules import rules_text

USAGE = """usage: python -m nki_emulator SCRIPT [ARGUMENT...]
       python -m nki_emulator check PATH...
       python -m nki_emulator rules
       python -m nki_emulator enable | disable

Run SCRIPT with `import nki` served by the emulator (or by the real nki, if it is installed), or
check the kernels below each PATH against the rules of the NKI language without running them.
`rules` prints the rules of the emulator and of the language, with their documentation.
`enable` writes a file into this environment's site-packages that makes
`NKI_SIMULATOR=1 python SCRIPT` do the same; `disable` removes it.

environment:
  NEURON_PLATFORM_TARGET_OVERRIDE  trn1|inf2|gen2, trn2|gen3 (default), trn3|gen4
  NKI_PRECISE_FP                   1 (default): real dtypes; 0: low-precision floats as float32
  NKI_EMULATOR_TRACEBACK           full: tracebacks show the emulator's own frames as well
"""


def main(arguments):
    """Run the command line; returns the exit status unless the script ends the process."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE, end="", file=sys.stdout if arguments else sys.stderr)
        return 0 if arguments else 2
    if arguments[0] == "check":
        return checker.main(arguments[1:])
    if arguments == ["rules"]:
        return _rules()
    if arguments in (["enable"], ["disable"]):
        return _startup(arguments[0])
    script = arguments[0]
    if script.startswith("-") or not os.path.isfile(script):
        reason = "unknown option" if script.startswith("-") else "no such file"
        print(f"nki_emulator: {reason}: {script}\n\n{USAGE}", end="", file=sys.stderr)
        return 2
    install()
    sys.argv = arguments
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    sys.excepthook = tracebacks.from_script(script)
    runpy.run_path(script, run_name="__main__")
    return 0


@pipes.quiet
def _rules():
    print(f"# Rules of the emulator\n\n{rulebook.table_text()}\n")
    print(f"# Rules of the language checker\n\n{rules_text()}")
    return 0


def _startup(command):
    try:
        path = startup.enable() if command == "enable" else startup.disable()
    except OSError as error:
        print(f"nki_emulator: {error}", file=sys.stderr)
        return 1
    if path is None:
        print("nothing to remove")
    else:
        print(f"{'wrote' if command == 'enable' else 'removed'} {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
