"""The surface of the package, read and imported as the Hub's tools do."""

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import neuron_vit as nv

PACKAGE = Path(nv.__file__).parent


def test_all_is_a_literal_list_of_names_that_resolve():
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    [listed] = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and node.targets[0].id == "__all__"
    ]
    assert listed == nv.__all__ == sorted(listed, key=lambda name: (name.islower(), name))
    for name in listed:
        assert hasattr(nv, name), name


def test_no_name_that_transformers_would_prefer():
    for name in ("flash_attn_varlen_func", "flash_attn_func", "sparse_atten_func"):
        assert not hasattr(nv, name)


@pytest.mark.parametrize("name", nv.__all__)
def test_everything_public_is_documented(name):
    value = getattr(nv, name)
    if inspect.isfunction(value) or inspect.isclass(value) or inspect.ismodule(value):
        assert inspect.getdoc(value)


def test_functions_follow_torch_nn_functional():
    """Same names and order as torch's functions; what torch lacks is keyword-only."""
    for name, parameters in {
        "layer_norm": "input normalized_shape weight bias eps",
        "rms_norm": "input normalized_shape weight eps",
        "linear": "input weight bias",
        "scaled_dot_product_attention": "query key value attn_mask dropout_p is_causal scale "
        "enable_gqa",
    }.items():
        found = inspect.signature(getattr(nv, name)).parameters.values()
        ours = [p.name for p in found if p.kind is p.POSITIONAL_OR_KEYWORD]
        assert ours == parameters.split()
        assert all(p.kind is p.KEYWORD_ONLY for p in found if p.name not in ours)


def test_references_have_the_parameters_of_the_kernels():
    from neuron_vit import _nki, reference

    for name in reference.__all__:
        kernel = _nki.kernel(name)
        function = inspect.unwrap(getattr(kernel, "func", kernel))
        expected = list(inspect.signature(getattr(reference, name)).parameters)
        assert list(inspect.signature(function).parameters) == expected, name


def test_importing_needs_torch_alone():
    """Neither nki nor anything that only some machines have is imported before a call."""
    code = (
        "import sys; import neuron_vit; "
        "print(sorted({'nki', 'nki_emulator', 'transformers', 'kernels', "
        "'torch_neuronx'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


def test_operators_carry_the_namespace_of_the_build():
    """Each registration names its operator with add_op_namespace_prefix, directly."""
    found = 0
    for path in PACKAGE.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.library.custom_op":
                assert ast.unparse(node.args[0]).startswith("add_op_namespace_prefix("), path.name
                found += 1
    assert found == 18
