"""All rows of the grid, and the functions of nki.isa that are not in it, each with the reason."""

from . import (
    grid_rows_copies,
    grid_rows_dma,
    grid_rows_random,
    grid_rows_scalar,
    grid_rows_search,
    grid_rows_tensor,
    grid_rows_vector,
)

ROWS = [
    row
    for module in (
        grid_rows_copies, grid_rows_vector, grid_rows_scalar, grid_rows_search, grid_rows_tensor,
        grid_rows_dma, grid_rows_random,
    )
    for row in module.ROWS
]  # fmt: skip

# Functions without a row.
OTHERS = {
    "get_nc_version": "query",
    "get_nc_sub_version": "query",
    "register_alloc": "register",
    "register_move": "register",
    "register_load": "register",
    "register_store": "register",
    "core_barrier": "two cores",
    "sendrecv": "two cores",
}
