"""`python -m nki_emulator script.py [arguments]`: run a script whose `import nki` is the emulator.

`python -m nki_emulator check PATH...` checks kernels without running them (see `checker`).

The script runs as `__main__`, with its own directory first on the import path and its arguments in
`sys.argv`, as `python script.py` would run it.
"""

import os
import runpy
import sys

from . import checker, install

USAGE = """usage: python -m nki_emulator SCRIPT [ARGUMENT...]
       python -m nki_emulator check PATH...

Run SCRIPT with `import nki` served by the emulator (or by the real nki, if it is installed), or
check the kernels below each PATH against the rules of the NKI language without running them.

environment:
  NEURON_PLATFORM_TARGET_OVERRIDE  trn1|inf2|gen2, trn2|gen3 (default), trn3|gen4
  NKI_PRECISE_FP                   1 (default): real dtypes; 0: low-precision floats as float32
"""


def main(arguments):
    """Run the command line; returns the exit status of a usage error, else runs the script."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE, end="", file=sys.stdout if arguments else sys.stderr)
        return 0 if arguments else 2
    if arguments[0] == "check":
        return checker.main(arguments[1:])
    script = arguments[0]
    if script.startswith("-") or not os.path.isfile(script):
        reason = "unknown option" if script.startswith("-") else "no such file"
        print(f"nki_emulator: {reason}: {script}\n\n{USAGE}", end="", file=sys.stderr)
        return 2
    install()
    sys.argv = arguments
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    runpy.run_path(script, run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
