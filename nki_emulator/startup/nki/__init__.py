"""The first `import nki` of a process: replaces itself by the real `nki` or by the emulator.

On the import path only as `nki_emulator.startup` describes.
"""

import importlib
import os
import sys

_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# From here on the folder must not be found any more, neither by the search for the real nki.
sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != _FOLDER]
del sys.modules["nki"]
if os.environ.get("NKI_SIMULATOR") == "1":
    importlib.import_module("nki_emulator").install()
else:
    importlib.import_module("nki")
