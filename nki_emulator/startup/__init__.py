"""`NKI_SIMULATOR=1 python script.py`: a plain `import nki` that finds the emulator.

The official simulator is part of the `nki` package, so there a variable is enough. The emulator is
not called `nki`, to stay out of the way of the real one, and a package that is installed changes
nothing in Python's start-up on its own. Whoever wants `NKI_SIMULATOR=1 python script.py` asks for
it once per environment with ``python -m nki_emulator enable``. That writes one line into one file,
`nki_emulator.pth` in the environment's site-packages, which Python reads when it starts: if
``NKI_SIMULATOR`` is 1, this folder joins the import path, and with it the package `nki` inside. The
first `import nki` then chooses as `nki_emulator.install` does: the real one if there is one. In
processes without the variable nothing changes. ``python -m nki_emulator disable`` removes the file.
"""

import os
import sysconfig

FOLDER = os.path.dirname(os.path.abspath(__file__))
FILE_NAME = "nki_emulator.pth"
LINE = (
    f'import os, sys; os.environ.get("NKI_SIMULATOR") == "1" and sys.path.insert(0, {FOLDER!r})\n'
)


def enable(site_packages=None):
    """Write the file; returns its path. ``site_packages`` defaults to this environment's."""
    path = _path(site_packages)
    with open(path, "w", encoding="utf-8") as file:
        file.write(LINE)
    return path


def disable(site_packages=None):
    """Remove the file; returns its path, or None if there was none."""
    path = _path(site_packages)
    if not os.path.exists(path):
        return None
    os.remove(path)
    return path


def _path(site_packages):
    return os.path.join(site_packages or sysconfig.get_path("purelib"), FILE_NAME)
