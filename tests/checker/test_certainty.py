"""Nothing is said about what the source does not decide, and views keep what it does decide."""

import pytest

from nki_emulator.checker import check_paths

KERNEL = """\
import nki
import nki.isa as nisa
import nki.language as nl

WIDTH = 512


@nki.jit
def kernel(x, y, flag, size, buffer, dtype):
    tile = nl.ndarray((128, WIDTH), dtype=nl.float32, buffer=nl.sbuf)
    psum = nl.ndarray((128, 2, 256), dtype=nl.float32, buffer=nl.psum)
    {}
"""


def rules(folder, statement):
    file = folder / "kernel.py"
    file.write_text(KERNEL.format(statement.replace("\n", "\n    ")))
    return [finding.rule for finding in check_paths([file])]


UNDECIDED = [
    # parameters, their shapes and their views
    "return x[0]",
    "nisa.dma_copy(dst=y, src=x)",
    "nisa.memset(dst=x, value=1.5)",
    "tiles = nl.ndarray((size, 4), dtype=dtype, buffer=buffer)\nnisa.memset(dst=tiles, value=0.5)",
    "tiles = nl.ndarray(x.shape, x.dtype, x.buffer)\nreturn tiles",
    # either of two
    "out = nl.ndarray((4, 4), dtype, nl.sbuf if flag else nl.shared_hbm)\nreturn out",
    "either = psum if flag else x\nnisa.dma_copy(dst=y, src=either)",
    "either = x\nif flag:\n    either = psum\nnisa.dma_copy(dst=y, src=either)",
    "for tile in (x, y):\n    print(tile.anything)",
    "tile, psum = x\nnisa.dma_copy(dst=y, src=psum)",
    # shapes and starts that a name decides
    "nisa.memset(dst=tile[size : size + 16, :], value=0.0)",
    "nisa.tensor_copy(dst=tile[:, 0:size], src=tile[:, 4:8])",
    "nisa.tensor_copy(dst=tile.reshape((128, size)), src=tile)",
    "view = tile[size]\nprint(view.reshape((3, 5)))",
    "nisa.tensor_copy(dst=tile, src=tile[..., ::size])",
    "some = nl.ndarray((64, 8), dtype, buffer)\nprint(some[:, 0].reshape((64, 2, 3)))",
    # list elements, dictionary values, results of functions
    "tiles = [psum]\ntiles[0] = x\nnisa.dma_copy(dst=y, src=tiles[0])",
    "def pick():\n    return psum\nnisa.dma_copy(dst=y, src=pick())",
    "keys = {}\nkeys[size] = x\nkeys[str(3)] = y",
    # optional registers and tensors are compared with None
    "register = nisa.register_alloc()\nif register == None:\n    print(size)",
    "if tile == None or flag:\n    print(size)",
    "assert nl.equal(tile, tile)",
    # operations, engines and modes from outside
    "nisa.tensor_scalar(dst=x, data=y, op0=flag, operand0=1.0, engine=size)",
    "nisa.dma_copy(y, x, dge_mode=flag)",
    "nisa.activation(x, nl.exp if flag else size, y)",
    "nisa.dma_copy(*x)",
]

# The same idea with everything decided: the rule speaks again.
DECIDED = [
    ("nisa.dma_copy(dst=y, src=psum)", "E09-dma-psum"),
    ("view = psum\nother = view[:, 0]\nnisa.dma_copy(dst=y, src=other)", "E09-dma-psum"),
    ("nisa.dma_copy(dst=y, src=psum.permute((0, 2, 1)))", "E09-dma-psum"),
    ("nisa.dma_copy(dst=y, src=psum.ap([[512, 128], [1, 512]]))", "E09-dma-psum"),
    ("nisa.dma_copy(dst=y, src=psum.flatten_dims(1, 2)[:, nl.ds(size, 4)])", "E09-dma-psum"),
    ("def body(i):\n    nisa.dma_copy(dst=y, src=psum)\nnl.fori_loop(0, 4, body)", "E09-dma-psum"),
    ("nisa.memset(dst=tile[16:32], value=0.0)", "E19-start-partition"),
    ("nisa.memset(dst=tile[64:128][16:32, 0:4], value=0.0)", "E19-start-partition"),
    ("nisa.memset(dst=tile[5, :], value=0.0)", "E19-start-partition"),
    ("nisa.tensor_copy(dst=tile[:, 0:4], src=tile[:, 4:9])", "E20-size"),
    ("nisa.tensor_copy(dst=tile[..., ::2], src=tile[:, :255])", "E20-size"),
    ("nisa.tensor_copy(dst=tile, src=psum[:, 0, :])", "E20-size"),
    ("nisa.tensor_copy(dst=tile, src=tile[:, 0:1].broadcast(1, WIDTH // 2))", "E20-size"),
    ("print(tile[:, 0].reshape((128, 2)))", "E13-reshape-count"),
    ("print(tile[0, :].reshape((256,)))", "E13-reshape-count"),
    ("print(tile.expand_dim(1).squeeze_dim(1).reshape((128, 3)))", "E13-reshape-count"),
    ("print(nl.ndarray(psum.shape, nl.float32).reshape((128, 3)))", "E13-reshape-count"),
    ("height = min(tile.shape[0], 64) * 3\nnl.ndarray((height, 4), dtype)", "E19-partitions"),
    ("copy = nisa.tensor_copy\ncopy(tile, tile, engine=5)", "E04-enum-value"),
    ("a, (b, c) = 1, (2, psum)\nnisa.dma_copy(dst=y, src=c)", "E09-dma-psum"),
    ("nisa.iota(psum, [[1, 512]])", "E20-buffer"),
    ("nisa.nc_matmul(psum, stationary=psum[:, 0, 0:128], moving=tile)", "E20-buffer"),
    ("nisa.nc_matmul(psum, tile[0:64, 0:128], tile)", "E20-size"),
    ("nisa.nc_matmul(psum, tile[:, 0:64], tile)", "E20-size"),
    ("nisa.nc_transpose(psum[:, 0, 0:64], tile[:, 0:128])", "E20-size"),
    ("nisa.bn_stats(x, psum.broadcast(1, 3))", "E20-size"),
    ("nisa.max8(x, tile[:, 0:4])", "E20-size"),
]


@pytest.mark.parametrize("statement", UNDECIDED)
def test_undecided(statement, tmp_path):
    if statement == "nisa.dma_copy(*x)":
        assert rules(tmp_path, statement) == ["E21-star"]
    else:
        assert rules(tmp_path, statement) == []


@pytest.mark.parametrize("statement, rule", DECIDED)
def test_decided(statement, rule, tmp_path):
    assert rules(tmp_path, statement) == [rule]
