"""guides/nki_simulator.rst, get-started/quickstart-implement-run-kernel.rst: running kernels."""

import os
import subprocess
import sys
from pathlib import Path

import torch

from .support import (
    load,
    nisa,
    nki,
    nl,
    np,
    pair,
    pytest,
    refused,
    rounded,
    same_bits,
    save,
    simulate,
    tile,
    values,
)  # fmt: skip

ROOT = Path(__file__).parents[2]


@nki.jit
def difference(left, right):
    a, b = nl.load(left), nl.load(right)
    out = nl.ndarray(left.shape, dtype=left.dtype, buffer=nl.shared_hbm)
    nl.store(out, value=nl.subtract(a, b))
    return out


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_quick_start(dtype):
    """Section "Quick Start", and the quickstart's kernel: NumPy and torch in, the same kind out."""
    x, y = values((128, 24), dtype), values((128, 24), dtype, seed=1)
    expected = rounded(x.astype(np.float32) - y.astype(np.float32), dtype)
    same_bits(nki.simulate(difference)(x, y), expected)
    same_bits(difference(x, y), expected)
    got = nki.simulate(difference)(torch.from_numpy(x), torch.from_numpy(y))
    assert isinstance(got, torch.Tensor)
    same_bits(got.numpy(), expected)


SCRIPT = """
import nki, nki.isa as nisa, nki.language as nl
import torch

@nki.jit
def product(left, right):
    t = nl.multiply(nl.load(left), nl.load(right))
    out = nl.ndarray(left.shape, dtype=left.dtype, buffer=nl.shared_hbm)
    nl.store(out, value=t)
    return out

print(product(torch.full((2, 2), 3.0), torch.full((2, 2), 5.0)).tolist())
"""


def test_the_environment_variable(tmp_path):
    """Section "NKI_SIMULATOR=1 environment variable": a script runs unchanged."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = os.environ | {"NKI_SIMULATOR": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "nki_emulator", str(script)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.stdout == "[[15.0, 15.0], [15.0, 15.0]]\n", done.stderr


@pytest.mark.parametrize(
    "name, version",
    [("trn1", 2), ("gen2", 2), ("trn2", 3), ("gen3", 3), ("trn3", 4), ("gen4", 4), ("inf2", 2)],
)
def test_targets(on_target, name, version):
    """Section "Target Platform", and the stub of nki.jit: the names of the environment variable."""

    def kernel():
        assert nisa.get_nc_version() == getattr(nisa.nc_version, f"gen{version}")
        assert nisa.get_nc_sub_version() == 0

    on_target(name)
    simulate(kernel)()


def test_precise_floating_point(monkeypatch):
    """Section "Precise Floating-Point Mode": real dtypes, or float32 with 0."""

    def kernel(x):
        t = tile(x.shape, nl.bfloat16)
        nisa.tensor_scalar(dst=t, data=load(x), op0=nl.multiply, operand0=1.0)
        out = nl.ndarray(x.shape, dtype=nl.float32)
        nisa.tensor_copy(dst=out, src=t)
        return save(out)

    x = values((4, 6))
    same_bits(simulate(kernel)(x), rounded(x, "bfloat16").astype(np.float32))
    monkeypatch.setenv("NKI_PRECISE_FP", "0")
    same_bits(simulate(kernel)(x), x)


def test_device_print(capsys):
    """Section "Using device_print": prefix and values on stdout, from SBUF and from HBM."""

    def kernel(x):
        t = load(x)
        nl.device_print("my tile", t)
        nl.device_print("input", x)

    simulate(kernel)(np.array([[1.5, 2.5]], np.float32))
    printed = capsys.readouterr().out
    assert "my tile" in printed and "input" in printed and printed.count("2.5") == 2


def test_print_shows_tensors_and_registers(capsys):
    """Section "Using Python print": any intermediate tensor or register."""

    def kernel(x):
        print(load(x))
        print(nisa.register_alloc(1234))

    simulate(kernel)(np.array([[1.5, 2.5]], np.float32))
    printed = capsys.readouterr().out
    assert "1.5" in printed and "2.5" in printed and "1234" in printed


def test_breakpoint_stops_in_the_kernel(monkeypatch):
    """Section "Using breakpoint()": the debugger sees the kernel's own variables."""
    seen = []
    monkeypatch.setattr(
        sys, "breakpointhook", lambda: seen.append(sys._getframe(1).f_locals["doubled"])
    )

    def kernel(x):
        doubled = nl.add(nl.load(x), nl.load(x))
        breakpoint()
        return save(doubled)

    x = values((2, 3))
    same_bits(simulate(kernel)(x), 2 * x)
    assert seen[0].shape == (2, 3)


def test_arguments_that_the_kernel_writes():
    """Section "Execution", steps 1 and 4: inputs are HBM tensors and change in place."""

    def kernel(x, scale):
        assert nl.is_hbm(x.buffer) and scale == 2.0
        t = load(x)
        nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=scale)
        nisa.dma_copy(dst=x, src=t)

    x = values((4, 4))
    expected = 2 * x
    assert simulate(kernel)(x, 2.0) is None
    same_bits(x, expected)


def test_two_programs():
    """Section "Execution", LNC2: two programs with ids of their own, sharing their arguments."""

    @nki.jit
    def kernel(x):
        assert x.buffer == nl.shared_hbm and nl.num_programs() == 2
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        core = nl.program_id(0)
        t = load(x[core])
        nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=float(core))
        nisa.dma_copy(dst=out[core], src=t)
        return out

    x = values((2, 4, 4))
    same_bits(nki.simulate(kernel[2])(x), x + np.arange(2, dtype=np.float32)[:, None, None])


def test_uninitialised_memory():
    """Section "Uninitialized Memory Detection": the cases that the page lists are errors here."""

    def partly(rows):
        t = nl.ndarray((4, 4), dtype=nl.float32)
        nisa.memset(dst=t[0:rows], value=1.0)
        return save(nl.add(t, t))  # rule

    pair("uninitialized-read", partly, 4, 3)

    def off_by_one(steps):
        t = nl.ndarray((4, 8), dtype=nl.int32)
        for i in range(steps):
            nisa.memset(dst=t[:, i : i + 1], value=i)
        return save(nl.add(t, t))  # rule

    pair("uninitialized-read", off_by_one, 8, 7)


def test_a_nan_that_was_written_is_a_value():
    """Section "Uninitialized Memory Detection": here writing counts, not the value."""

    def kernel(x):
        return save(nl.add(load(x), 1.0))

    x = np.array([[np.nan, 1.0]], np.float32)
    same_bits(simulate(kernel)(x), x + 1)


def test_a_tile_with_too_many_partitions():
    """Section "Hardware Constraint Validation", and tiling-overview.rst, tile-size constraint 1."""

    def kernel(partitions):
        nl.ndarray((partitions, 512), dtype=nl.float32, buffer=nl.sbuf)  # rule

    error = pair("partitions", kernel, 128, 256)
    assert "256" in str(error) and "128" in str(error)


def test_capacity_is_checked_here():
    """Section "Memory Model": the official simulator does not; the chip has one SBUF."""

    def kernel(count):
        tiles = [nl.ndarray((128, 8 * 1024), dtype=nl.float32) for _ in range(count)]  # rule
        return tiles and None

    pair("sbuf-full", kernel, 7, 8)


def test_collectives_are_refused():
    """Section "Known Gaps": nki.collectives is not implemented in the official simulator either."""
    with pytest.raises(NotImplementedError):
        nki.collectives.all_reduce([], [], None, nl.add)


def test_the_quickstart_asserts_its_shapes():
    """quickstart-implement-run-kernel.rst, step 3: the kernel's own checks reach the caller."""

    @nki.jit
    def kernel(a, b):
        assert a.shape == b.shape
        assert a.shape[0] <= nl.tile_size.pmax
        return save(nl.add(load(a), load(b)))

    ones = np.ones((4, 3), np.float16)
    same_bits(kernel(ones, ones), 2 * ones)
    with pytest.raises(AssertionError):
        kernel(ones, ones[:, :2].copy())
    with pytest.raises(AssertionError):
        kernel(np.ones((129, 3), np.float16), np.ones((129, 3), np.float16))


def test_results_come_from_hbm():
    """quickstart-implement-run-kernel.rst, step 6: outputs, like inputs, are in HBM."""

    def kernel(x):
        return load(x)

    refused("return-buffer", kernel, values((2, 2)), line=None)
