"""The NKI 0.6 API as data: names, signatures, enum members.

Read from ``api_0_6.json`` beside this package (names, parameters and defaults of the NKI 0.6.0 API
reference). A dotted path such as ``nki.language.ndarray`` names one thing of the API.
"""

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

DATA_FILE = Path(__file__).parents[1] / "api_0_6.json"

LANGUAGE = "nki.language"
ISA = "nki.isa"
COLLECTIVES = "nki.collectives"

# Namespaces whose contents the API reference does not list; their attributes are not checked.
# `nki.dtype` is what public kernels write as an annotation.
OPEN_NAMESPACES = ("nki.typing", "nki.compiler", "nki.experimental", "nki.dtype", "nki.simulator")

# Another name for nki.isa in public kernels.
ALIASES = {"nki.isa.constants": ISA}

# Attributes of a tensor that only another page shows (NKI Library, kernel-utils/allocator).
UNLISTED_TENSOR_ATTRIBUTES = frozenset({"address"})

# Compile-time integers of nki.language.tile_size that are the same on every target.
TILE_SIZES = {
    "pmax": 128,
    "psum_fmax": 512,
    "psum_bank_fmax": 512,
    "psum_bank_fmax_bytes": 2048,
    "gemm_stationary_fmax": 128,
    "gemm_moving_fmax": 512,
    "bn_stats_fmax": 512,
}

INTEGER_DTYPES = frozenset({"int8", "int16", "int32", "uint8", "uint16", "uint32"})
PACKED_DTYPES = frozenset({"float8_e5m2_x4", "float8_e4m3fn_x4", "float4_e2m1fn_x4"})
DTYPES = (
    INTEGER_DTYPES
    | PACKED_DTYPES
    | {
        "bool_",
        "float16",
        "float32",
        "bfloat16",
        "tfloat32",
        "float8_e4m3",
        "float8_e4m3fn",
        "float8_e5m2",
        "float8_e8m0fnu",
    }
)

BUFFERS = {
    "sbuf": "sbuf",
    "psum": "psum",
    "hbm": "private_hbm",
    "private_hbm": "private_hbm",
    "shared_hbm": "shared_hbm",
}
ON_CHIP = frozenset({"sbuf", "psum"})
HBM = frozenset({"private_hbm", "shared_hbm"})


@dataclass(frozen=True)
class Signature:
    """Parameters of one function in order; a default is the text of its expression."""

    path: str
    names: tuple
    defaults: dict
    any_positional: bool
    any_keyword: bool

    @property
    def required(self):
        return tuple(name for name in self.names if name not in self.defaults)

    def enum_of(self, name):
        """Dotted path of the enum that a parameter takes, read off its default; else None."""
        head, dot, _ = self.defaults.get(name, "").partition(".")
        path = f"{ISA}.{head}"
        return path if dot and path in load_api().enums else None


@dataclass(frozen=True)
class Api:
    """functions, enums, tensor_methods: by dotted path or name; names: everything that exists."""

    functions: dict
    enums: dict
    tensor_methods: dict
    tensor_attributes: frozenset
    names: frozenset

    def members(self, module):
        """Public names directly in a module, enum or `nki.language.tile_size`."""
        start = module + "."
        return sorted(
            name[len(start) :]
            for name in self.names
            if name.startswith(start) and "." not in name[len(start) :]
        )

    def parent_is_closed(self, path):
        """True if the API reference lists all that can follow the last dot of ``path``."""
        parent = path.rpartition(".")[0]
        return (
            parent in ("nki", LANGUAGE, ISA, COLLECTIVES, f"{LANGUAGE}.tile_size")
            or parent in self.enums
        )

    def lacks(self, path):
        """True if ``path`` is certainly not part of NKI 0.6."""
        if path in OPEN_NAMESPACES or path in ALIASES:
            return False
        if path.rpartition(".")[2].startswith("__"):
            return False
        if path.startswith(tuple(f"{name}." for name in OPEN_NAMESPACES)):
            return False
        if path.rpartition(".")[0] in self.enums and path.endswith((".name", ".value")):
            return False
        return self.parent_is_closed(path) and path not in self.names


def canonical(path):
    """The documented name of an aliased path."""
    for alias, target in ALIASES.items():
        if path == alias or path.startswith(alias + "."):
            return target + path[len(alias) :]
    return path


def read_signature(path, parameters, skip_self=False):
    names = []
    defaults = {}
    any_positional = False
    any_keyword = False
    for parameter in parameters[1 if skip_self else 0 :]:
        name = parameter["name"]
        if name.startswith("**"):
            any_keyword = True
        elif name.startswith("*"):
            any_positional = True
        else:
            names.append(name)
            if "default" in parameter:
                defaults[name] = parameter["default"]
    return Signature(path, tuple(names), defaults, any_positional, any_keyword)


@lru_cache(maxsize=1)
def load_api():
    """The :class:`Api` of NKI 0.6."""
    modules = json.loads(DATA_FILE.read_text())["modules"]
    functions = {}
    enums = {}
    names = {"nki", *modules}
    for module, content in modules.items():
        for name, parameters in content["functions"].items():
            functions[f"{module}.{name}"] = read_signature(f"{module}.{name}", parameters)
        for name, description in content["classes"].items():
            path = f"{module}.{name}"
            names.add(path)
            if "Enum" in description["bases"]:
                enums[path] = tuple(description["members"])
                names.update(f"{path}.{member}" for member in description["members"])
        names.update(f"{module}.{name}" for name in content["constants"])
    names.update(functions)
    classes = modules[LANGUAGE]["classes"]
    for sizes in (classes["_TileSize"]["members"], classes["_TileSize"]["methods"]):
        names.update(f"{LANGUAGE}.tile_size.{name}" for name in sizes)
    tensor = classes["NkiTensor"]
    methods = {
        name: read_signature(f"NkiTensor.{name}", parameters, skip_self=True)
        for name, parameters in tensor["methods"].items()
    }
    # The one method that the reference declares as an alias of another.
    methods["reinterpret_cast"] = methods["view"]
    attributes = UNLISTED_TENSOR_ATTRIBUTES.union(tensor["members"])
    return Api(functions, enums, methods, attributes, frozenset(names))
