"""The card: every fact in it is that of the code."""

import re
import shutil

import pytest
import torch
from jinja2 import Environment

import neuron_vit
from hub.card import render_card
from hub.limits import read_limits
from hub.manifest import read_manifest
from hub.source import literal_constants
from neuron_vit.nki_src import limits
from tests.hub.small_kernel import ROOT, write_checkout
from tests.parity import cases, rule


@pytest.fixture(scope="module")
def card():
    """This project's card, rendered."""
    return render_card(read_manifest(ROOT))


def section(card, title):
    """Return the text under a heading."""
    (text,) = re.findall(rf"^## {title}\n(.*?)(?=^## |\Z)", card, re.DOTALL | re.MULTILINE)
    return text


def test_everything_is_rendered(card):
    assert card.startswith("---\nlibrary_name: kernels\nlicense: apache-2.0\n")
    assert not re.search(r"\{[{%]|[%}]\}|\bNone\b|\[\]|Undefined", card)
    assert "\n\n\n" not in card


def test_quickstart_names_the_repository_and_the_version(card):
    line = 'get_kernel("org/neuron-vit", version=1, trust_remote_code=True)'
    assert line in section(card, "Quickstart")


def test_constraints_are_those_of_the_limits(card):
    text = section(card, "Constraints")
    for dtype in limits.DTYPE_BYTES:
        assert dtype in text
    assert f"head sizes up to {limits.HEAD_SIZE_MAX}, up to {limits.SEQUENCE_MAX} tokens" in text
    assert "Chips: trn2, trn3; 1 or 2 physical cores" in text


def test_each_size_in_the_table_is_the_last_that_fits(card):
    """Asked of the package's public function, as a user would."""
    header, _, *rows = re.findall(r"^\|(.*)\|$", section(card, "Constraints"), re.MULTILINE)
    columns = [cell.split() for cell in header.split("|")[2:]]
    assert columns == [
        [target, dtype]
        for target in ("trn2", "trn3")
        for dtype in ("bfloat16", "float16", "float32")
    ]
    asked = {
        "layer_norm": (1, lambda n: {"width": n}),
        "rms_norm": (1, lambda n: {"width": n}),
        "linear": (128, lambda n: {"tokens": 5000, "in_features": n, "out_features": n}),
        "mlp": (128, lambda n: {"tokens": 5000, "width": n, "hidden": 4 * n, "out": n}),
        "vit_block": (64, None),
    }
    seen = set()
    for row in rows:
        kernel, size, *values = (cell.strip(" `") for cell in row.split("|"))
        seen.add(kernel)
        step, sizes = asked[kernel]
        if kernel == "vit_block":
            sizes = block_sizes(int(re.search(r"at (\d+) tokens", size)[1]))
        for (target, dtype), value in zip(columns, map(int, values)):
            found = neuron_vit.supports(kernel, dtype=dtype, target=target, **sizes(value))
            beyond = neuron_vit.supports(kernel, dtype=dtype, target=target, **sizes(value + step))
            assert (found.ok, beyond.ok) == (True, False), row
    assert seen == set(asked)


def block_sizes(tokens):
    return lambda width: {
        "batch": 1,
        "tokens": tokens,
        "width": width,
        "heads": width // 64,
        "head_dim": 64,
        "hidden": 4 * width,
    }


@pytest.mark.parametrize("option", [{"is_causal": True}, {"dropout_p": 0.5}])
def test_what_is_refused_is_listed(card, option, monkeypatch):
    """Calls without a kernel are made, where nothing else may run, and their reasons looked up."""
    monkeypatch.setenv("NKI_SIMULATOR", "1")
    monkeypatch.setenv("NEURON_VIT_REQUIRE_NKI", "1")
    x = torch.ones(1, 1, 4, 32)
    with pytest.raises(neuron_vit.NeuronVitUnsupported) as refused:
        neuron_vit.scaled_dot_product_attention(x, x, x, **option)
    reason = re.match(r"neuron-vit: (.*?)\. [A-Z]", str(refused.value))[1]
    assert f"- {reason}: " in section(card, "What is not accelerated")


def test_tested_shapes_and_tolerances_are_those_of_the_parity_suite(card):
    text = section(card, "What is tested, and how closely")
    for name, values in {
        "tokens": cases.TOKENS,
        "head sizes": cases.HEAD_DIMS,
        "widths": cases.WIDTHS,
        "hidden widths of an MLP": cases.HIDDENS,
        "activations": cases.ACTIVATIONS,
        "epsilon": cases.EPS,
    }.items():
        assert f"- {name}: {', '.join(map(str, values))}\n" in text
    for block in cases.BLOCKS:
        assert "/".join(map(str, block)) in text
    assert f"at most {rule.ERROR_RATIO} times" in text
    assert f"at least {rule.COSINE_FLOOR}" in text


def test_version_pairs_are_those_of_the_requirements(card):
    text = section(card, "Versions")
    pins = (ROOT / "constraints.txt").read_text().splitlines()
    rows = re.findall(r"^\| (\S+) \| (\S+) \| (\S+) \|$", text, re.MULTILINE)[1:]
    assert [name for name, _, _ in rows] == ["torch", "kernels", "huggingface_hub", "transformers"]
    project = (ROOT / "pyproject.toml").read_text()
    for name, asked, tested in rows:
        assert f"{name}=={tested}" in pins
        assert f'"{name}{asked}"' in project


def test_public_names_and_layers(card):
    names = re.findall(r"^- `(.*)`$", section(card, "Public names"), re.MULTILINE)
    assert names == [name for name in neuron_vit.__all__ if name != "layers"]
    layers = re.findall(r"^- `(.*)`$", section(card, "Layers for `kernelize`"), re.MULTILINE)
    assert layers and all(hasattr(neuron_vit.layers, name) for name in layers)


def test_a_changed_limit_changes_the_card(tmp_path):
    package = tmp_path / "package"
    (package / "nki_src").mkdir(parents=True)
    text = (ROOT / "nki_src" / "limits.py").read_text()
    assert "USABLE = 0.95" in text
    (package / "nki_src" / "limits.py").write_text(text.replace("USABLE = 0.95", "USABLE = 0.5"))
    halved, whole = read_limits(package), read_limits(read_manifest(ROOT).package)
    for row, full in zip(halved["largest"], whole["largest"]):
        assert all(value < other for value, other in zip(row["values"], full["values"]))


def test_a_checkout_without_these_facts_has_a_card_without_them(small_build):
    card = (small_build / "CARD.md").read_text()
    assert "- `double`\n" in card and "- `Double`\n" in card and "`layers`" not in card
    for title in ("What is tested", "Versions"):
        assert f"## {title}" not in card
    assert "{%" not in card and "{{" not in card and "None" not in card


def test_the_hubs_own_builder_can_render_the_template():
    """It offers these names and leaves out what it does not know."""
    template = Environment(trim_blocks=True).from_string((ROOT / "CARD.md").read_text())
    names = {"functions": ["f"], "layers": [], "has_benchmark": True, "upstream": None}
    card = template.render(repo_id="a/b", version=3, license="mit", source=None, **names)
    assert 'get_kernel("a/b", version=3, trust_remote_code=True)' in card
    assert "- `f`\n" in card
    assert "## Versions" not in card


def test_template_must_not_name_what_there_is_not(tmp_path):
    root = write_checkout(tmp_path / "checkout")
    shutil.copyfile(ROOT / "LICENSE", root / "LICENSE")
    (root / "CARD.md").write_text("{{ unknown }}")
    with pytest.raises(Exception, match="unknown"):
        render_card(read_manifest(root))


def test_literal_constants(tmp_path):
    path = tmp_path / "module.py"
    path.write_text("A = 1\n_B = ('x', 2)\nC = f()\nd = 4\nclass E:\n    F = 5\n")
    assert literal_constants(path) == {"A": 1, "_B": ("x", 2)}
    assert literal_constants(tmp_path / "absent.py") is None
