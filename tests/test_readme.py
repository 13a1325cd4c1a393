"""The README's Python snippets run as printed, through the kernels under emulation.

The first one loads the package from a Hub; tests/hub covers that, so here it takes the checkout's.
"""

import os
import pathlib
import re
import subprocess
import sys

import pytest

from nki_emulator.timing import trust

README = pathlib.Path(__file__).parents[1] / "README.md"
SNIPPETS = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
LOAD = 'nv = get_kernel("org/neuron-vit", version=1, trust_remote_code=True)'
EXPECTED = [
    "torch.Size([1, 12, 197, 64]) nki",
    "torch.Size([1, 197, 192])",
    """module           class        path   reason
encoder.layer.0  Dinov2Layer  block
encoder.layer.1  Dinov2Layer  block
layernorm        LayerNorm    op
2 of 2 blocks run as vit_block; 1 other module as an operator.
torch.Size([1, 257, 192]) {'vit_block': 2, 'layer_norm': 1}""",
    "torch.Size([1, 197, 768]) {'vit_block': 2}",
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
