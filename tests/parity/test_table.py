"""The table is complete: every kernel has a twin and rows, every grid value meets every dtype."""

import inspect
import itertools

import pytest
import torch

import neuron_vit.reference

from . import cases, expressions, inputs, kernels

SIGNATURES = kernels.signatures()


def test_kernels_were_found():
    assert set(inputs.BUILDERS) <= set(SIGNATURES)


@pytest.mark.parametrize("name", sorted(SIGNATURES))
def test_every_kernel_has_a_twin_and_rows(name):
    _, parameters = SIGNATURES[name]
    for module in (neuron_vit.reference, expressions):
        twin = getattr(module, name)
        assert list(inspect.signature(twin).parameters) == parameters, module.__name__
    for dtype in cases.DTYPES:
        rows = [case for case in cases.CASES if case.kernel == name and case.dtype == dtype]
        assert any(not case.long for case in rows), f"no {dtype} row for {name}"


def test_no_short_row_is_written_twice():
    rows = [*cases.GRID, *cases.HOSTILE, *cases.LAYOUT, *cases.OPTIONS]
    ids = [case.id for case in rows if not case.long]
    assert sorted(ids) == sorted(case.id for case in cases.CASES if not case.long)


def values_met(kernel, dtype, setting):
    return {
        dict(case.settings).get(setting)
        for case in cases.GRID
        if (case.kernel, case.dtype) == (kernel, dtype) and not case.long
    }


@pytest.mark.parametrize("dtype", cases.DTYPES)
@pytest.mark.parametrize(
    ("kernel", "setting", "values"),
    [
        ("layer_norm", "rows", cases.TOKENS),
        ("layer_norm", "width", cases.WIDTHS),
        ("layer_norm", "eps", cases.EPS),
        ("rms_norm", "rows", cases.TOKENS),
        ("rms_norm", "width", cases.WIDTHS),
        ("rms_norm", "eps", cases.EPS),
        ("attention", "tokens", cases.TOKENS),
        ("attention", "head_dim", cases.HEAD_DIMS),
        ("attention", "layout", inputs.LAYOUTS),
        ("linear", "tokens", cases.TOKENS),
        ("linear", "in_features", cases.WIDTHS + cases.HIDDENS),
        ("linear", "out_features", cases.WIDTHS + cases.HIDDENS),
        ("linear", "layout", ("in_out", "out_in")),
        ("mlp", "tokens", cases.TOKENS),
        ("mlp", "width", cases.WIDTHS),
        ("mlp", "hidden", cases.HIDDENS),
        ("mlp", "activation", cases.ACTIVATIONS),
        ("mlp", "layout", ("in_out", "out_in")),
        ("swiglu_mlp", "tokens", cases.TOKENS),
        ("swiglu_mlp", "hidden", [family[1] for family in cases.GATED.values()]),
        ("swiglu_mlp", "norm", (None, "layer")),
        ("swiglu_mlp", "packed", (None, "gate first")),
        ("swiglu_mlp", "layout", ("in_out", "out_in")),
        *(
            (kernel, setting, values)
            for kernel in ("ada_layer_norm", "ada_rms_norm")
            for setting, values in (
                ("tokens", (*cases.TOKENS, 256)),
                ("width", cases.WIDTHS),
                ("eps", cases.EPS),
                ("affine", (True, False)),
                ("residual", (True, False)),
                ("gate", (True, False)),
            )
        ),
        ("vit_block", "tokens", cases.TOKENS),
        ("vit_block", "width", cases.WIDTHS),
        ("vit_block", "head_dim", cases.HEAD_DIMS),
        ("vit_block", "hidden", cases.HIDDENS),
        ("vit_block", "activation", cases.ACTIVATIONS),
        ("vit_block", "norm", ("layer", "rms")),
        ("vit_block", "layer_scale", (True, False)),
    ],
)
def test_every_value_meets_every_dtype(kernel, setting, values, dtype):
    assert values_met(kernel, dtype, setting) >= set(values)


@pytest.mark.parametrize(
    ("kernel", "axes"),
    [
        ("layer_norm", {"rows": cases.TOKENS, "width": cases.WIDTHS}),
        ("rms_norm", {"rows": cases.TOKENS, "width": cases.WIDTHS}),
        ("attention", {"tokens": cases.TOKENS, "head_dim": cases.HEAD_DIMS}),
        ("mlp", {"tokens": cases.TOKENS, "width": cases.WIDTHS, "hidden": cases.HIDDENS}),
    ],
)
def test_full_cross_products(kernel, axes):
    met = {
        (case.dtype, *(dict(case.settings).get(name) for name in axes))
        for case in cases.GRID
        if case.kernel == kernel and not case.long
    }
    assert met >= set(itertools.product(cases.DTYPES, *axes.values()))


@pytest.mark.parametrize("kernel", inputs.BUILDERS)
def test_every_tensor_has_nan_before_and_behind_it(kernel):
    arguments = inputs.BUILDERS[kernel](inputs.Draw(torch.bfloat16, seed=1))
    tensors = [argument for argument in arguments if isinstance(argument, torch.Tensor)]
    assert tensors
    for tensor in tensors:
        assert tensor.is_contiguous() and torch.isfinite(tensor).all()
        start, end = tensor.storage_offset(), tensor.storage_offset() + tensor.numel()
        memory = torch.tensor([], dtype=tensor.dtype).set_(tensor.untyped_storage())
        assert start == inputs.GUARD and torch.isnan(memory[:start]).all()
        assert len(memory) == end + inputs.GUARD and torch.isnan(memory[end:]).all()


def test_padded_attention_operands_hold_nan_between_their_rows():
    q, _, _, _, (shape, strides), *_ = inputs.attention(
        inputs.Draw(torch.float32, seed=1), tokens=5, head_dim=8, heads=2, layout="padded"
    )
    assert torch.isfinite(q.as_strided(shape, strides)).all() and torch.isnan(q).any()


@pytest.mark.parametrize("kernel", inputs.BUILDERS)
def test_no_bias_is_zero(kernel):
    builder = inputs.BUILDERS[kernel]
    arguments = builder(inputs.Draw(torch.float16, seed=1))
    named = zip(inspect.signature(getattr(expressions, kernel)).parameters, arguments)
    for name, value in named:
        if name.endswith("bias") and value is not None:
            assert value.abs().min() >= 0.25, name
