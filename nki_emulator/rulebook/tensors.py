"""Rules of tensors and their views, static and with run-time addresses."""

from .pages import (
    ACCESS_PATTERNS,
    GUIDE,
    ISA,
    LANGUAGE,
    MIGRATION,
    RELEASES,
    SHARED,
    SIMULATOR,
    TILING,
    TRAINIUM1,
    TRAINIUM3,
    Rule,
    own,
)  # fmt: skip

_TENSOR = f"{LANGUAGE}: NkiTensor"

RULES = {
    # Making a tensor.
    "buffer": Rule(
        "a buffer is nl.sbuf, nl.psum, nl.hbm, nl.private_hbm or nl.shared_hbm, not a string",
        f"{MIGRATION}: String buffer names no longer supported",
    ),
    "dtype": Rule(
        "a dtype is one of the NKI data types",
        f"{SHARED}: Supported Data Types",
    ),
    "rank": Rule(
        "a tensor in SBUF or PSUM has at least two dimensions",
        f"{GUIDE}: View primitives (the partition dimension is special)",
    ),
    "partitions": Rule(
        "a tensor in SBUF or PSUM has at most 128 partitions (dimension 0)",
        f"{TILING}: Tile size considerations; {TRAINIUM1}: NeuronCore-v2 Compute Engines",
    ),
    "shape": Rule(
        "a shape is a tuple of positive integers",
        f"{_TENSOR}.__init__",
    ),
    # Static views.
    "ap-offset": Rule(
        "ap(offset=) is given on a tensor, not on a view with an offset, and falls on a whole "
        "element",
        own(
            f"{GUIDE} says that the view's offset is ignored and {LANGUAGE} (NkiTensor.ap) that it "
            "is added to; the emulator refuses where they differ"
        ),
    ),
    "ap-partition-stride": Rule(
        "the first pair of an on-chip pattern has the tensor's free size as stride",
        f"{ACCESS_PATTERNS}: Restriction on SBUF/PSUM Tensors",
    ),
    "ap-pattern": Rule(
        "a pattern is a list of [stride, count] with counts of at least 1; on the chip a partition "
        "pair and at least one more",
        f"{ACCESS_PATTERNS}: NKI API for the Access Pattern",
    ),
    "broadcast": Rule(
        "only a dimension of size 1 is broadcast, to a size of at least 1",
        f"{_TENSOR}.broadcast",
    ),
    "dim": Rule(
        "a dimension is an integer within the tensor's rank",
        _TENSOR,
    ),
    "flatten": Rule(
        "flatten_dims takes start_dim <= end_dim",
        f"{_TENSOR}.flatten_dims",
    ),
    "index": Rule(
        "an index is made of integers, slices, one `...` and nl.ds, one for each dimension at most",
        f"{_TENSOR}.__getitem__",
    ),
    "out-of-bounds": Rule(
        "an index, slice or pattern stays within the tensor, and a slice is not empty",
        f"{_TENSOR}.slice, select; {MIGRATION}: Deprecation of masking",
    ),
    "partition-dim": Rule(
        "on the chip, dimension 0 stays outermost and is not broadcast, split, merged or removed",
        f"{_TENSOR} (constraints of each method); {GUIDE}: View primitives",
    ),
    "partition-step": Rule(
        "an access covers consecutive partitions: no step in dimension 0 on the chip",
        f"{TRAINIUM1}: Accessing SBUF/PSUM tensors using compute engines",
    ),
    "permute": Rule(
        "permute takes a permutation of all dimensions",
        f"{_TENSOR}.permute",
    ),
    "rearrange": Rule(
        "both patterns of rearrange hold the same names once each, and sizes fit the dimensions",
        f"{_TENSOR}.rearrange",
    ),
    "reshape": Rule(
        "a reshape keeps the number of elements",
        f"{_TENSOR}.reshape, reshape_dim; {MIGRATION}: nki.language.NkiTensor.reshape",
    ),
    "reshape-layout": Rule(
        "dimensions that a reshape merges are dense in memory",
        f"{_TENSOR}.reshape, flatten_dims",
    ),
    "slice-step": Rule(
        "the step of a slice is at least 1",
        f"{_TENSOR}.slice",
    ),
    "squeeze": Rule(
        "squeeze_dim removes a dimension of size 1 and leaves two dimensions on the chip, one in "
        "HBM",
        f"{_TENSOR}.squeeze_dim; {GUIDE}: View primitives",
    ),
    "view-dtype": Rule(
        "view(dtype) needs a dense last dimension that holds whole elements of the new dtype",
        f"{_TENSOR}.view; with NKI_PRECISE_FP=0, {SIMULATOR}: Precise Floating-Point Mode",
    ),
    # What Python may not do with a tensor.
    "tensor-arithmetic": Rule(
        "tensors take no Python operators",
        f"{GUIDE}: Tensor Values (note)",
    ),
    "tensor-assignment": Rule(
        "tensors are not assigned to; instructions write them",
        f"{MIGRATION}: All ISA functions require a destination parameter",
    ),
    "tensor-condition": Rule(
        "a tensor is no condition: its elements are not known when the kernel is built",
        f"{GUIDE}: Tensor Values (note)",
    ),
    "tensor-iteration": Rule(
        "a tensor is indexed, not iterated over",
        f"{GUIDE}: Control Flow (loops run over ranges, lists and tuples)",
    ),
    # Run-time addresses.
    "ap-indirect-base": Rule(
        "ap with a run-time offset is called on a tensor that is dense to the right of the "
        "indexed dimension",
        own(
            f"{ACCESS_PATTERNS} scales the offset by the shape to the right and {LANGUAGE} "
            "(NkiTensor.ap) by the stride; the emulator refuses where they differ"
        ),
    ),
    "ap-indirect-dim": Rule(
        "indirect_dim is a dimension of the tensor, and on the chip not the partition",
        f"{_TENSOR}.ap; {ACCESS_PATTERNS}: Scalar Dynamic Access",
    ),
    "ap-indirect-dtype": Rule(
        "ap with a run-time offset and another dtype has elements of the same size, unless the "
        "offset counts single elements",
        own("no document says which elements the offset would count"),
    ),
    "ap-one-offset": Rule(
        "scalar_offset and vector_offset are not given together",
        f"{ACCESS_PATTERNS}: NKI API for the Access Pattern; {ISA}: dma_copy",
    ),
    "ap-vector-offset": Rule(
        "vector_offset works for indirect_dim 0 and has an index for every row of the pattern",
        f"{ACCESS_PATTERNS}: Vector Dynamic Access",
    ),
    "dynamic-operand": Rule(
        "a run-time address is resolved by instructions only",
        own("the emulator finds the address when an instruction runs"),
    ),
    "dynamic-out-of-bounds": Rule(
        "a run-time index stays within its dimension and the access within its tensor, unless "
        "oob_mode.skip skips it",
        f"{ISA}: dma_copy (oob_mode), oob_mode",
    ),
    "dynamic-select": Rule(
        "a run-time index selects along a dimension that steps forward in memory, and on the chip "
        "not the partition",
        f"{_TENSOR}.select (dynamic)",
    ),
    "dynamic-view": Rule(
        "a view has at most one run-time index, and the dimension it acts on is not changed again",
        f"{_TENSOR}.is_indirect, select, vector_select; {RELEASES}: 0.5.0, Known Issues",
    ),
    "scalar-index": Rule(
        "a scalar offset is a register or a (1, 1) tile of int32 or uint32 in SBUF",
        f"{ACCESS_PATTERNS}: NKI API for the Access Pattern; {ISA}: dma_copy",
    ),
    "vector-buffer": Rule(
        "a vector of run-time indices indexes a tensor in HBM",
        f"{_TENSOR}.vector_select; {ISA}: dma_copy",
    ),
    "vector-index": Rule(
        "a vector offset is a 2-D tile of int32 or uint32 in SBUF",
        f"{_TENSOR}.vector_select; {ISA}: dma_copy",
    ),
    "vector-instruction": Rule(
        "row indices are taken by DMA instructions only",
        f"{ISA}: dma_copy, dma_transpose, dma_compute",
    ),
    "vector-select": Rule(
        "vector_select acts on dimension 0, the outermost in memory, with one index a partition",
        f"{_TENSOR}.vector_select; {ACCESS_PATTERNS}: Vector Dynamic Access",
    ),
    # .indirect, NeuronCore-v4.
    "indirect-count": Rule(
        "num_elem is 1 to index.size, and the engine reads its offsets in groups of 16 (tensor "
        "engine: 32) partitions of the index",
        f"{_TENSOR}.indirect",
    ),
    "indirect-dtype": Rule(
        "an .indirect operand of nc_matmul is float16, bfloat16, float8_e4m3, float8_e5m2 or "
        "float8_e4m3fn",
        f"{ISA}: nc_matmul, Tensor indirection",
    ),
    "indirect-duplicates": Rule(
        "the offsets of a written .indirect operand are different columns",
        own("no document says which of two values would stay"),
    ),
    "indirect-engine": Rule(
        "an instruction with .indirect views runs on the engines it names for them",
        f"{ISA}: tensor_copy, tensor_tensor, tensor_scalar (Tensor indirection)",
    ),
    "indirect-groups": Rule(
        "the groups of partitions of an index hold the same offsets",
        own("no document says whether each group would use its own"),
    ),
    "indirect-index": Rule(
        "the index is a 2-D integer tile in SBUF with the partitions of the tensor",
        f"{_TENSOR}.indirect",
    ),
    "indirect-integer": Rule(
        "tensor_scalar of 32-bit integers takes no .indirect views",
        f"{ISA}: tensor_scalar, Tensor indirection",
    ),
    "indirect-mx-pair": Rule(
        "MX data and their scales are both .indirect with the same index, or neither",
        f"{ISA}: nc_matmul_mx, Tensor indirection",
    ),
    "indirect-operand": Rule(
        "only the operands that an instruction names may be .indirect views; those of DMA may not",
        f"{ISA}: the instruction, Tensor indirection; {TRAINIUM3}: SBUF/PSUM indirect access",
    ),
    "indirect-partition": Rule(
        "an index starts at partition 0, 32, 64 or 96, and at the partition of the operand that "
        "the instruction names",
        f"{ISA}: the instruction, Tensor indirection",
    ),
    "indirect-scalar-psum": Rule(
        "a scattered dst of the Scalar engine is in SBUF",
        f"{ISA}: tensor_copy, tensor_scalar, activation (Tensor indirection)",
    ),
    "indirect-tensor": Rule(
        ".indirect is called on a 2-D tile with a dense free dimension",
        own("the stub shows a 2-D tile and offsets of its free dimension, nothing else"),
    ),
    "indirect-tiling": Rule(
        "a matmul with .indirect views uses no row tiling",
        f"{ISA}: nc_matmul, nc_matmul_mx (Tensor indirection)",
    ),
    "indirect-transpose": Rule(
        "moving is no .indirect view in transpose mode",
        f"{ISA}: nc_matmul, Tensor indirection",
    ),
}
