"""Rules of the tensor engine: matmuls, MX formats, transposes."""

from .pages import ISA, MX, TRAINIUM1, TRAINIUM2, TRAINIUM3, Rule, own

_MATMUL = f"{ISA}: nc_matmul"
_MX = f"{ISA}: nc_matmul_mx"
_QUANTIZE = f"{ISA}: quantize_mx"

RULES = {
    "matmul-accumulate": Rule(
        "accumulate is True, False or None",
        f"{_MATMUL}, Accumulation mode",
    ),
    "matmul-contraction": Rule(
        "stationary and moving have the same number of partitions",
        f"{_MATMUL}, Tile size",
    ),
    "matmul-double-row": Rule(
        "double_row takes float8 operands of shape [K, 2, ...]",
        f"{_MATMUL}, Data types, Layout",
    ),
    "matmul-dst-buffer": Rule(
        "the tensor engine writes PSUM",
        f"{_MATMUL}, nc_transpose, nc_matmul_mx (Memory types)",
    ),
    "matmul-dst-dtype": Rule(
        "results of a matmul are float32, from NeuronCore-v4 on also bfloat16",
        f"{_MATMUL}, Data types; {_MX}, Data types",
    ),
    "matmul-dst-overlap": Rule(
        "every result of a matmul has a place of its own in dst",
        own("no document says what two results in one place give"),
    ),
    "matmul-dst-partition": Rule(
        "dst of a matmul starts at partition 0, where column 0 of the array goes",
        f"{_MATMUL} (tile_position: start_column must be 0); {TRAINIUM1}: Tensor Engine",
    ),
    "matmul-dst-shape": Rule(
        "dst is [free size of stationary, free size of moving]",
        f"{_MATMUL}, Layout",
    ),
    "matmul-dtype": Rule(
        "operands are float8_e4m3, float8_e5m2, bfloat16, float16, tfloat32 or float32; from "
        "NeuronCore-v4 on also float8_e4m3fn",
        f"{_MATMUL}, Data types",
    ),
    "matmul-dtype-mix": Rule(
        "float32 and tfloat32 go only with each other, and float8_e4m3 not with float8_e4m3fn",
        f"{_MATMUL}, Data types",
    ),
    "matmul-moving-free": Rule(
        "moving has at most 512 elements a partition; on NeuronCore-v4 4096 into float32 and 8192 "
        "into bfloat16",
        f"{_MATMUL}, Tile size; {_MX}, Tile size",
    ),
    "matmul-onezero": Rule(
        "an operand that is said to hold only ones and zeros does",
        f"{_MATMUL} (is_stationary_onezero, is_moving_onezero)",
    ),
    "matmul-stationary-free": Rule(
        "stationary has at most 128 elements a partition",
        f"{_MATMUL}, Tile size",
    ),
    "matmul-tile": Rule(
        "tile_position is (row, 0) and tile_size (rows, 128), both or neither; the operands fit "
        "the row tile, which starts at a multiple of its size",
        f"{_MATMUL}, Tiling mode; {_MX}, Tiling Mode",
    ),
    "matmul-tile-position": Rule(
        "an operand starts at the partition that feeds the first row of its row tile",
        f"{TRAINIUM1}: Tensor Engine (128 rows, fed by 128 partitions); {_MATMUL}, Tiling mode",
    ),
    "matmul-transpose": Rule(
        "transpose mode goes without double_row and does not accumulate",
        f"{TRAINIUM2}: Double FP8 Matmul Performance, Built-in Transpose Support",
    ),
    "matmul-transpose-identity": Rule(
        "in transpose mode moving is the identity matrix",
        f"{_MATMUL}, Transpose mode",
    ),
    # MX formats.
    "mx-dst-shape": Rule(
        "dst of quantize_mx has a quarter of the free size of src",
        f"{_QUANTIZE}, Tile size",
    ),
    "mx-dtype": Rule(
        "MX data are float8_e5m2_x4, float8_e4m3fn_x4 or, as input of a matmul, float4_e2m1fn_x4",
        f"{_QUANTIZE}, Data types; {_MX}, Data types",
    ),
    "mx-free-size": Rule(
        "src of quantize_mx has a multiple of 4 elements a partition",
        f"{_QUANTIZE}, Tile size",
    ),
    "mx-nonfinite": Rule(
        "src of quantize_mx holds finite numbers",
        own("the scale is the exponent of the largest magnitude, which NaN and infinity lack"),
    ),
    "mx-partitions": Rule(
        "MX data cover 32, 64, 96 or 128 partitions",
        f"{_QUANTIZE}, Tile size; {_MX}, Tile size",
    ),
    "mx-scale-dtype": Rule(
        "MX scales are float8_e8m0fnu or uint8",
        f"{_QUANTIZE}, Data types; {_MX}, Data types",
    ),
    "mx-scale-partition": Rule(
        "scales lie in the quadrant of their data, at an offset of 0, 4, 8 or 12 partitions",
        f"{MX}: Packing Scale Values",
    ),
    "mx-scale-shape": Rule(
        "scales have four partitions in each quadrant of their data and a quarter of the free size",
        f"{MX}: Scale Tensor; {TRAINIUM3}: Quad-MXFP8/MXFP4 Matmul Performance",
    ),
    "mx-source-dtype": Rule(
        "src of quantize_mx is float16 or bfloat16",
        f"{_QUANTIZE}, Data types",
    ),
    "mx-stationary-even": Rule(
        "stationary of nc_matmul_mx has an even number of elements a partition",
        f"{_MX}, Tile size",
    ),
    # Transposes.
    "transpose-8-bit": Rule(
        "the tensor engine does not transpose 8-bit data, which it writes as 16-bit elements",
        f"{TRAINIUM2}: Built-in Transpose Support (note); {ISA}: nc_transpose (dst has data's "
        "dtype)",
    ),
    "transpose-dtype": Rule(
        "a transpose keeps the dtype",
        f"{ISA}: nc_transpose, Data types",
    ),
    "transpose-shape": Rule(
        "dst of a transpose has the sizes of data swapped",
        f"{ISA}: nc_transpose, Layout",
    ),
    "transpose-size": Rule(
        "the Vector engine transposes at most 32 x 32, the tensor engine 128 x 128",
        f"{ISA}: nc_transpose, Tile size",
    ),
}
