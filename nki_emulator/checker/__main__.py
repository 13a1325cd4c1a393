"""``python -m nki_emulator.checker PATH...``: the checker on its own."""

import sys

from . import main

sys.exit(main())
