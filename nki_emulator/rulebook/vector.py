"""Rules of single instructions of the Vector, Scalar and GpSimd engines."""

from .pages import ISA, MIGRATION, RELEASES, TRAINIUM1, Rule, own

_RANGE = f"{ISA}: range_select"

RULES = {
    # memset.
    "memset-packed": Rule(
        "memset of a packed type writes 0",
        f"{ISA}: memset (note)",
    ),
    "memset-range": Rule(
        "the value fits in dst's dtype",
        own("nothing says what memset makes of a value that the dtype lacks"),
    ),
    "memset-type": Rule(
        "the value has the type of dst: an integer for integer dtypes",
        f"{MIGRATION}: nisa.memset — strict type matching",
    ),
    # Statistics.
    "bn-aggr-width": Rule(
        "bn_aggr takes a multiple of three elements a partition",
        f"{ISA}: bn_aggr",
    ),
    "bn-stats-free": Rule(
        "bn_stats takes at most 512 elements a partition",
        f"{ISA}: bn_stats",
    ),
    # Selects.
    "predicate-dtype": Rule(
        "a predicate is an unsigned integer; for select_reduce of 8 or 16 bits, signed or not",
        f"{ISA}: tensor_copy_predicated, select_reduce",
    ),
    "range-select-dst": Rule(
        "dst of range_select has a -inf for the elements outside the range",
        own(f"{_RANGE} (Note on numerical stability) says that they become -inf"),
    ),
    "range-select-fill": Rule(
        "on_false_value of range_select is the smallest float32",
        f"{_RANGE} (on_false_value)",
    ),
    "range-select-index": Rule(
        "range_start plus the column stays within 2^24",
        f"{_RANGE}, Constraints",
    ),
    "range-select-maximum": Rule(
        "(warning) with an empty range and a narrow dst, reduce_res is float32",
        f"{_RANGE}, Note on numerical stability",
    ),
    "select-dtype": Rule(
        "on_true of select_reduce is not tfloat32, int32 or uint32; on_true_tile of range_select "
        "is a float type",
        f"{ISA}: select_reduce, range_select",
    ),
    # Search.
    "eight-values": Rule(
        "the search instructions take and give eight elements a partition, dst in two dimensions",
        f"{ISA}: max8, nc_find_index8, nc_match_replace8",
    ),
    "nan-order": Rule(
        "searched and sorted values are not NaN",
        own("the documents do not say how NaN compares"),
    ),
    "search-width": Rule(
        "a searched tile has 8 to 16384 elements a partition",
        f"{ISA}: max8, nc_find_index8",
    ),
    # Shuffle.
    "shuffle-mask": Rule(
        "shuffle_mask is a list of 32 integers, 0 to 31 or 255",
        f"{ISA}: nc_stream_shuffle; {TRAINIUM1}: Cross-partition Data Movement",
    ),
    "shuffle-source": Rule(
        "a shuffled partition comes from a partition that src covers",
        own("a partition that no operand covers may hold anything"),
    ),
    # Patterns on GpSimd.
    "affine-pattern": Rule(
        "a pattern is 1 to 4 pairs [step, count] that make as many elements as dst has a partition",
        f"{ISA}: iota, affine_select",
    ),
    "partition-reduce-shape": Rule(
        "dst of tensor_partition_reduce has one partition of the free size of data",
        own(f"{ISA} (tensor_partition_reduce) says only that it reduces across partitions"),
    ),
    # Gathers and positions.
    "core-partitions": Rule(
        "the number of partitions is a multiple of 16, the partitions of a GpSimd core",
        f"{ISA}: local_gather, topk",
    ),
    "gather-count": Rule(
        "num_valid_indices is given, and at most the indices of a core and 4096",
        f"{ISA}: local_gather; {RELEASES}: 0.6.0, Known Issues",
    ),
    "gather-elements": Rule(
        "num_elem_per_idx is 1, 2, 4, 8, 16 or 32",
        f"{ISA}: local_gather",
    ),
    "gather-range": Rule(
        "gathered indices are within the source",
        f"{ISA}: local_gather (out of bounds is undefined), nc_n_gather",
    ),
    "gather-shape": Rule(
        "dst has num_valid_indices * num_elem_per_idx elements a partition",
        f"{RELEASES}: 0.6.0, Known Issues (local_gather)",
    ),
    "nonzero-shape": Rule(
        "dst has one element more a partition than src",
        f"{ISA}: nonzero_with_count, Constraints",
    ),
    "same-cores": Rule(
        "operands lie in the same partitions, where a GpSimd core finds both",
        f"{ISA}: local_gather, nonzero_with_count; {TRAINIUM1}: GpSimd Engine",
    ),
    "segment-ids": Rule(
        "segment ids are integers that are not negative",
        f"{ISA}: sequence_bounds",
    ),
    "sequence-shape": Rule(
        "segment_ids has shape [1, n] and dst [1, 2, n]",
        f"{ISA}: sequence_bounds",
    ),
    "topk-k": Rule(
        "K is at most n and at most 32767",
        f"{ISA}: topk, Constraints",
    ),
    "topk-n": Rule(
        "n is 8 to 65535 and fits in src",
        f"{ISA}: topk, Constraints",
    ),
    "topk-shape": Rule(
        "src, val_dst and idx_dst are 2-D, and the last two have one shape",
        f"{ISA}: topk, Constraints",
    ),
    # Random numbers.
    "probability": Rule(
        "a drop probability is within 0 and 1",
        f"{ISA}: dropout",
    ),
    "random-range": Rule(
        "min and max of rand2 are finite and min < max",
        f"{ISA}: rand2, Constraints",
    ),
    "random-state": Rule(
        "a generator's state is 2-D with 6 (GpSimd) or 24 (Vector) words a partition",
        f"{ISA}: rand_set_state, rand_get_state (Tile size)",
    ),
    "seed-shape": Rule(
        "src_seeds of set_rng_seed is [1, 1]",
        f"{ISA}: set_rng_seed, Tile size",
    ),
}
