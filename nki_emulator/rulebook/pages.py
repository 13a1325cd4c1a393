"""The pages that rules are taken from, and how a rule is written down.

Paths are relative to the folder ``nki/`` of the public repository aws-neuron/aws-neuron-sdk (SDK
2.32, NKI 0.6); the release notes are in ``release-notes/`` beside it. ``api/nki/isa`` and its like
stand for the stub ``__init__.py`` in that folder, from which the API reference is made.
"""

from dataclasses import dataclass

NKI = "api/nki"
ISA = "api/nki/isa"
LANGUAGE = "api/nki/language"
SHARED = "api/nki.api.shared.rst"
TILE_SIZE = "api/nki.language.tile_size.rst"
GUIDE = "get-started/nki-language-guide.rst"
TILING = "get-started/about/tiling-overview.rst"
LNC = "get-started/about/lnc.rst"
ACCESS_PATTERNS = "deep-dives/nki-aps.rst"
DYNAMIC_LOOPS = "deep-dives/nki-dynamic-loops.rst"
DGE = "deep-dives/nki-dge.rst"
MX = "deep-dives/mxfp-matmul.rst"
SCHEDULING = "guides/how-to-scheduling-apis.rst"
SIMULATOR = "guides/nki_simulator.rst"
TRAINIUM1 = "guides/architecture/trainium_inferentia2_arch.rst"
TRAINIUM2 = "guides/architecture/trainium2_arch.rst"
TRAINIUM3 = "guides/architecture/trainium3_arch.rst"
MIGRATION = "migration/index.rst"
RELEASES = "release-notes/components/nki.rst"

PAGES = frozenset(
    value for name, value in list(globals().items()) if name.isupper() and isinstance(value, str)
)

# Stands for the name of the instruction whose operands break the rule.
INSTRUCTION = "{instruction}"
EACH = f"{ISA}: {INSTRUCTION}"

# How the place of a rule begins that no document states.
OWN = "none"


@dataclass(frozen=True)
class Rule:
    """One rule of the emulator.

    statement: what is allowed; place: where the documentation says so, as ``page: section``
    (several are separated by "; "), or ``none: why`` for a rule that is the emulator's own.
    """

    statement: str
    place: str

    @property
    def is_own(self):
        """Whether no document states the rule."""
        return self.place.startswith(OWN)

    def place_in(self, instruction):
        """The place as it reads in an error of ``instruction`` (None outside an instruction)."""
        return self.place.replace(INSTRUCTION, instruction or "the instruction")


def own(why):
    """The place of a rule that no document states."""
    return f"{OWN}: {why}"
