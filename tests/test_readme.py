"""The README's Python snippets run as printed, through the kernels under emulation.

The first one loads the package from a Hub; tests/hub covers that, so here it takes the checkout's.
"""

import os
import pathlib
import re
import subprocess
import sys

import pytest

from neuron_vit import layouts
from nki_emulator.timing import trust

ROOT = pathlib.Path(__file__).parents[1]
README = ROOT / "README.md"
SNIPPETS = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
LOAD = 'nv = get_kernel("org/neuron-vit", version=1, trust_remote_code=True)'
EXPECTED = [
    "torch.Size([1, 197, 768]) nki",
    "torch.Size([1, 197, 192])",
    """module           class        path   reason
encoder.layer.0  Dinov2Layer  block
encoder.layer.1  Dinov2Layer  block
layernorm        LayerNorm    op
2 of 2 blocks run as vit_block; 1 other module as an operator.
torch.Size([1, 257, 192]) {'vit_block': 2, 'layer_norm': 1}""",
    """True {'vit_encoder': 1, 'vit_block': 2}
vit_encoder: 1 NKI launches
nothing was compiled: the kernels ran in the simulator on cpu""",
    "16384.0",
    "True vector",
]


def test_every_snippet_has_an_expected_output():
    assert len(SNIPPETS) == len(EXPECTED)
    assert LOAD in SNIPPETS[0]


def test_the_errors_of_the_timing_model_are_the_recorded_ones():
    text = README.read_text()
    for figures in trust.errors().values():
        assert f"{100 * figures['median']:.0f} %" in text
    assert f"{100 * trust.errors()['vector']['largest']:.0f} %" in text


def test_the_kernel_config_is_that_of_the_docstring():
    """It takes an accelerator to run; tests/hub/test_layouts.py runs its like with one made up."""
    (block,) = re.findall(
        r"```\n(from transformers import KernelConfig.*?)```", README.read_text(), re.DOTALL
    )
    documented = [line.strip() for line in layouts.__doc__.splitlines()]
    assert all(line.strip() in documented for line in block.splitlines())


def test_the_messages_of_loading_are_those_that_tests_of_the_hub_assert():
    section = README.read_text().split("## When loading goes wrong")[1].split("\n## ")[0]
    cited = re.findall(r"^\| `+(.*?)`+ (?:from .*? )?\|", section, re.MULTILINE)
    tests = "".join(
        (ROOT / "tests" / "hub" / name).read_text()
        for name in ("test_robust_loading.py", "test_commands.py")
    )
    # Long strings are written in pieces there.
    tests = re.sub(r'"\s*\n\s*f?"', "", tests)
    for message in cited:
        assert message.strip(". `") in tests, message
    assert len(cited) == 8


def test_the_paths_of_the_overview_exist():
    (block,) = re.findall(r"## Find your way\n\n```\n(.*?)```", README.read_text(), re.DOTALL)
    for line in block.splitlines():
        assert (ROOT / line.split()[0]).exists(), line


@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", range(len(EXPECTED)))
def test_snippet(number, tmp_path):
    script = tmp_path / "snippet.py"
    source = SNIPPETS[number].replace("from kernels import get_kernel", "import neuron_vit as nv")
    script.write_text(source.replace(LOAD, ""))
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "NKI_SIMULATOR": "1", "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == EXPECTED[number]
