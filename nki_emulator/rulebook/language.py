"""Rules of the functions of nki.language."""

from .pages import LANGUAGE, MIGRATION, RELEASES, Rule, own

_ISSUES = f"{RELEASES}: 0.4.0, Known Issues (NKI Language)"

RULES = {
    "boolean-values": Rule(
        "operands of logical functions hold 0 and 1",
        f"{LANGUAGE}: logical_and, logical_not",
    ),
    "broadcast-shape": Rule(
        "broadcast_to keeps the rank, and each dimension or its size 1",
        f"{LANGUAGE}: broadcast_to",
    ),
    "buffer-hbm": Rule(
        "the HBM side of load and store is in HBM",
        f"{LANGUAGE}: load, store, load_transpose2d",
    ),
    "constant": Rule(
        "shared_constant takes an array of a listed dtype, or the path of a .npy file",
        f"{LANGUAGE}: shared_constant",
    ),
    "constant-diverges": Rule(
        "both programs of a launch give a shared_constant the same values",
        f"{LANGUAGE}: shared_constant",
    ),
    "gather-axis": Rule(
        "gather_flattened has axis 0",
        f"{LANGUAGE}: gather_flattened (the free dimensions; other axes are not described)",
    ),
    "identity-dst": Rule(
        "dst of shared_identity_matrix is an SBUF tile [n, n] of the dtype",
        f"{LANGUAGE}: shared_identity_matrix",
    ),
    "implicit-broadcast": Rule(
        "tiles of a binary function have one shape; of abs_max and abs_min one may be a column",
        f"{_ISSUES}; {LANGUAGE}: abs_max (its example)",
    ),
    "matmul-transpose-x": Rule(
        "nl.matmul has transpose_x=True",
        _ISSUES,
    ),
    "nl-matmul-shape": Rule(
        "nl.matmul takes 2-D tiles, x with at most 128 and y with at most 512 elements a partition",
        f"{LANGUAGE}: matmul",
    ),
    "no-device-function": Rule(
        "divide, mod and fmod do not compile for the device",
        _ISSUES,
    ),
    "random-seed": Rule(
        "random_seed takes a [1, 1] tile",
        f"{LANGUAGE}: random_seed; {RELEASES}: 0.4.0, Known Issues (NKI Language)",
    ),
    "random-seed-engine": Rule(
        "(warning) before NeuronCore-v4 random_seed may not reach the engine that rand uses",
        _ISSUES,
    ),
    "result-dtype": Rule(
        "the result of tiles of two dtypes is given a dtype",
        own("the documents do not say which of two dtypes a result has"),
    ),
    "rms-norm-count": Rule(
        "n of rms_norm is a positive integer",
        f"{LANGUAGE}: rms_norm",
    ),
    "rsqrt-psum": Rule(
        "nl.rsqrt takes a tile in SBUF",
        f"{MIGRATION}: nki.language.rsqrt — PSUM inputs no longer supported",
    ),
    "scalar-power": Rule(
        "nl.power takes two tiles",
        _ISSUES,
    ),
    "two-dims": Rule(
        "transpose and load_transpose2d take a matrix",
        f"{LANGUAGE}: transpose, load_transpose2d",
    ),
    "where-condition": Rule(
        "the condition of where is a float tile of 1.0 and 0.0",
        f"{LANGUAGE}: where",
    ),
    "wrapper-operands": Rule(
        "at least one operand of a binary function is a tile",
        f"{LANGUAGE}: equal, bitwise_and",
    ),
}
