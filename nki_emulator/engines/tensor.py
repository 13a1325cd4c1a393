"""Tensor Engine: matrix multiplication, SBUF to PSUM."""

from .. import rules
from ..enums import matmul_perf_mode
from ..errors import NkiValidationError
from . import array, transposes

FP8_OCP = "float8_e4m3fn"  # From v4 on.
NO_TILE = ()  # The default of tile_position and tile_size; the empty tuple is one object.


def nc_matmul(
    session, dst, stationary, moving, is_stationary_onezero, is_moving_onezero, is_transpose,
    accumulate, tile_position, tile_size, perf_mode, name,
):  # fmt: skip
    """dst (+)= stationary.T @ moving, float32 accumulation."""
    array.memory(dst, (stationary, "stationary"), (moving, "moving"))
    double_row = perf_mode is matmul_perf_mode.double_row
    if not double_row:
        rules.one_of(perf_mode, "perf_mode", tuple(matmul_perf_mode))
    rules.flag(is_transpose, "is_transpose")
    rules.flag(is_stationary_onezero, "is_stationary_onezero")
    rules.flag(is_moving_onezero, "is_moving_onezero")
    if accumulate is not None:
        accumulate = array.command(accumulate)
    tile = None
    if tile_position is not NO_TILE or tile_size is not NO_TILE:
        tile = array.tiling(tile_position, tile_size)
    # What depends on shapes, dtypes and options alone is checked once a session.
    key = (
        "nc_matmul", dst.shape, dst.strides, dst.dtype, stationary.shape, stationary.dtype,
        moving.shape, moving.dtype, double_row, bool(is_transpose), tile,
    )  # fmt: skip
    plan = session.checked.get(key)
    if plan is None:
        plan = session.checked[key] = _plan(
            session, dst, stationary, moving, is_transpose, tile, double_row
        )
    depth, row, columns, width = plan
    target = session.target
    array.at_row(target, stationary, "stationary", row)
    array.at_row(target, moving, "moving", row)
    array.result_at_partition_zero(dst)
    if is_transpose and target.generation >= 3:
        transposes.by_mode(session, dst, stationary, moving, accumulate)
    else:
        left = array.matrix(stationary, "stationary", depth, columns)
        right = array.matrix(moving, "moving", depth, width)
        if is_stationary_onezero:
            _require_onezero(stationary, "stationary", left)
        if is_moving_onezero:
            _require_onezero(moving, "moving", right)
        if is_transpose:
            transposes.require_identity(right, depth)
        _multiply(session, dst, left, right, accumulate)
    return session.finish(
        "nc_matmul", "tensor", (dst,), (stationary, moving), name, row=row, rows=array.rows(tile),
        transpose=is_transpose, perf_mode=perf_mode.value, accumulate=accumulate,
    )  # fmt: skip


def _plan(session, dst, stationary, moving, is_transpose, tile, double_row):
    """Check everything but the places of the operands.

    Returns the length of the contraction, the first row of the array, and the free sizes of
    stationary and moving.
    """
    target = session.target
    depth = _check_operands(session, stationary, moving, double_row)
    row = array.row_tile(target, tile, stationary.shape[0])
    columns, width = stationary.size // depth, moving.size // depth
    array.free_sizes(target, dst, columns, width, "nc_matmul")
    array.distinct(dst)
    if is_transpose and target.generation >= 3:
        transposes.check_mode(dst, stationary, double_row)
    else:
        # Without a transpose mode (v2) a transpose is an ordinary product with the identity.
        array.sums_dtype(target, dst)
    return depth, row, columns, width


def _check_operands(session, stationary, moving, double_row):
    """Contraction and dtype rules; returns the length of the contraction."""
    partitions = stationary.shape[0]
    if moving.shape[0] != partitions:
        raise NkiValidationError(
            "matmul-contraction",
            f"stationary has {partitions} partitions and moving {moving.shape[0]}; the contraction "
            f"runs over the partitions of both, which must be equal.",
        )
    allowed = array.DTYPES + ((FP8_OCP,) if session.target.generation >= 4 else ())
    first, second = stationary.dtype, moving.dtype
    for dtype, role in ((first, "stationary"), (second, "moving")):
        if dtype not in allowed:
            raise NkiValidationError(
                "matmul-dtype",
                f"{role} is {dtype}; nc_matmul on {session.target.name} takes "
                f"{', '.join(allowed)}.",
            )
    if (first in array.WIDE) != (second in array.WIDE):
        raise NkiValidationError(
            "matmul-dtype-mix",
            f"stationary is {first} and moving {second}; float32 and tfloat32 go only with "
            f"float32 and tfloat32.",
        )
    if {first, second} == {"float8_e4m3", FP8_OCP}:
        raise NkiValidationError(
            "matmul-dtype-mix", "float8_e4m3 and float8_e4m3fn cannot be mixed in one matmul."
        )
    if not double_row:
        return partitions
    rules.from_generation(session, 3, "perf_mode double_row")
    for operand, role in ((stationary, "stationary"), (moving, "moving")):
        if (
            operand.dtype not in (*array.FP8, FP8_OCP)
            or len(operand.shape) < 3
            or operand.shape[1] != 2
        ):
            raise NkiValidationError(
                "matmul-double-row",
                f"{role} is {operand.dtype}{list(operand.shape)}; double_row takes float8 operands "
                f"of shape [K, 2, ...].",
            )
    return 2 * partitions


def _require_onezero(operand, role, values):
    """The hint halves the work on float32 operands by relying on it; it means nothing on others."""
    if operand.dtype == "float32" and not ((values == 0) | (values == 1)).all():
        raise NkiValidationError(
            "matmul-onezero",
            f"is_{role}_onezero=True and {role} holds values other than 0 and 1; leave the hint "
            f"out.",
        )


def _multiply(session, dst, left, right, accumulate):
    plan = dst.storage.accumulation(dst, accumulate, session.target)
    array.store(dst, array.product(left, right), plan)
