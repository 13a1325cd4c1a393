"""Every argument of every public function with values that it does not take.

The error is a ValueError, TypeError or NeuronVitUnsupported whose text starts with the function
and names the argument, before anything has run.
"""

import warnings

import pytest
import torch

import neuron_vit as nv
from tests.package.compose_cases import block_params

X = torch.randn(2, 5, 12)
HEADS = torch.randn(2, 3, 5, 8)
PACKED = HEADS[0].transpose(0, 1)
BOUNDS = torch.tensor([0, 2, 5])
SQUARE, VECTOR, ROW = torch.randn(12, 12), torch.randn(12), torch.randn(2, 12)
BLOCK = block_params()
ROTARY = block_params(rope="half")
ENCODER = nv.EncoderParams.from_blocks([BLOCK, BLOCK])
TABLE = torch.randn(5, 4)
MASK = torch.zeros(5, 5)
BIDIRECTIONAL = torch.nn.Module()
BIDIRECTIONAL.is_causal = False


def quantized(shape):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.quantize_per_tensor(torch.ones(shape), 0.1, 0, torch.quint8)


def nested(shape, layout):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parts = [torch.randn(size, 4) for size in (2, 3)]
        return torch.nested.nested_tensor(parts, layout=layout)


OBJECTS = {
    "str": "text",
    "list": [1.0],
    "dict": {},
    "object": object(),
    "complex": 1j,
    "class": torch.Tensor,
    "bytes": b"half",
}
NONE = {"None": None}
NUMBERS = {"int": 3, "float": 1.5, "bool": True, "nan": float("nan")}
NO_NUMBERS = {**OBJECTS, "bool": True, "tensor": torch.tensor(1.0)}
UNBOUNDED = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}


def without(name):
    return {key: value for key, value in OBJECTS.items() if key != name}


# Tensors that no argument takes, of the shape that the argument should have.
TENSORS = {
    "complex tensor": lambda shape: torch.zeros(shape, dtype=torch.complex64),
    "float8": lambda shape: torch.zeros(shape).to(torch.float8_e4m3fn),
    "uint8": lambda shape: torch.zeros(shape, dtype=torch.uint8),
    "sparse": lambda shape: torch.zeros(shape).to_sparse(),
    "csr": lambda shape: torch.zeros(5, 12).to_sparse_csr(),
    "mkldnn": lambda shape: torch.zeros(shape).to_mkldnn(),
    "quantized": quantized,
    "nested": lambda shape: nested(shape, torch.strided),
    "jagged": lambda shape: nested(shape, torch.jagged),
    "scalar tensor": lambda shape: torch.tensor(1.0),
    "on meta": lambda shape: torch.zeros(shape, device="meta"),
}


class Tensor:
    """A tensor argument; `main` says what device and dtype the others are to have."""

    def __init__(self, value, optional=False, main=False):
        self.value, self.optional, self.main = value, optional, main

    def wrong(self):
        yield from {**OBJECTS, **NUMBERS}.items()
        if not self.optional:
            yield from NONE.items()
        for name, make in TENSORS.items():
            if not (self.main and name == "on meta"):
                yield name, make(self.value.shape)
        if self.value.dtype.is_floating_point:
            yield "float64", self.value.double()
            yield "int64", self.value.long()


class MainTensor(Tensor):
    def __init__(self, value):
        super().__init__(value, main=True)

    def wrong(self):
        # Another dtype or device makes the next tensor the one that does not fit.
        return ((name, value) for name, value in super().wrong() if name != "float64")


class Choice:
    """A value with some wrong ones."""

    def __init__(self, value, *wrong):
        self.value, self.values = value, wrong

    def wrong(self):
        for values in self.values:
            yield from values.items()


def number(value, *more):
    return Choice(value, NO_NUMBERS, UNBOUNDED, *more)


NEGATIVE = {"negative": -1.0}
EPS = number(1e-5, NEGATIVE, NONE)
SCALE = number(0.5)
DROPOUT = number(0.0, NEGATIVE, {"too large": 1.5}, NONE)
FLAG = Choice(False, OBJECTS, NONE, {"int": 1, "tensor": torch.tensor(True)})
SHAPE = Choice(
    (12,),
    OBJECTS,
    NONE,
    {
        "float": 12.0,
        "floats": (12.0,),
        "other": (5,),
        "bool": True,
        "nothing": (),
        "long": (1,) * 9,
    },
    {"negative": -12, "tensor": torch.tensor([12])},
)
NAME = Choice("gelu", OBJECTS, NONE, NUMBERS, {"unknown": "mish", "tensor": torch.ones(2)})
NORM = Choice("layer", OBJECTS, NONE, NUMBERS, {"unknown": "batch", "tensor": torch.ones(2)})
INTEGERS = Tensor(torch.tensor([3, 5]), optional=True)


def optional(value):
    return Tensor(value, optional=True)


class Mask(Tensor):
    """A mask of one value broadcasts."""

    def wrong(self):
        return ((name, value) for name, value in super().wrong() if name != "scalar tensor")


def mask(value):
    return Mask(value, optional=True)


ATTENTIVE = torch.nn.Module()
ATTENTIVE.attn_processors = {}

TABLE_OF_CALLS = {
    "layer_norm": (
        nv.layer_norm,
        {
            "input": MainTensor(X),
            "normalized_shape": SHAPE,
            "weight": optional(VECTOR),
            "bias": optional(VECTOR),
            "eps": EPS,
            "residual": optional(X),
        },
    ),
    "rms_norm": (
        nv.rms_norm,
        {
            "input": MainTensor(X),
            "normalized_shape": SHAPE,
            "weight": optional(VECTOR),
            "eps": number(1e-5, NEGATIVE),
            "residual": optional(X),
        },
    ),
    "ada_layer_norm": (
        nv.ada_layer_norm,
        {
            "x": MainTensor(X),
            "shift": Tensor(ROW),
            "scale": Tensor(ROW),
            "weight": optional(VECTOR),
            "bias": optional(VECTOR),
            "eps": EPS,
            "residual": optional(X),
            "gate": optional(ROW),
        },
    ),
    "ada_rms_norm": (
        nv.ada_rms_norm,
        {
            "x": MainTensor(X),
            "shift": Tensor(ROW),
            "scale": Tensor(ROW),
            "weight": optional(VECTOR),
            "eps": EPS,
            "residual": optional(X),
            "gate": optional(ROW),
        },
    ),
    "linear": (
        nv.linear,
        {"input": MainTensor(X), "weight": Tensor(SQUARE), "bias": optional(VECTOR)},
    ),
    "mlp": (
        nv.mlp,
        {
            "input": MainTensor(X),
            "fc1_weight": Tensor(SQUARE),
            "fc1_bias": optional(VECTOR),
            "fc2_weight": Tensor(SQUARE),
            "fc2_bias": optional(VECTOR),
            "activation": NAME,
            "norm_weight": optional(VECTOR),
            "norm_bias": optional(VECTOR),
            "norm_eps": EPS,
            "norm": NORM,
        },
    ),
    "swiglu_mlp": (
        nv.swiglu_mlp,
        {
            "x": MainTensor(X),
            "w_gate": Tensor(SQUARE),
            "b_gate": optional(VECTOR),
            "w_up": Tensor(SQUARE),
            "b_up": optional(VECTOR),
            "w_down": Tensor(SQUARE),
            "b_down": optional(VECTOR),
            "activation": NAME,
            "norm_weight": optional(VECTOR),
            "norm_bias": optional(VECTOR),
            "norm_eps": EPS,
            "norm": NORM,
        },
    ),
    "scaled_dot_product_attention": (
        nv.scaled_dot_product_attention,
        {
            "query": MainTensor(HEADS),
            "key": Tensor(HEADS),
            "value": Tensor(HEADS),
            "attn_mask": mask(MASK),
            "dropout_p": DROPOUT,
            "is_causal": FLAG,
            "scale": SCALE,
            "enable_gqa": FLAG,
        },
    ),
    "scaled_dot_product_attention ": (
        nv.scaled_dot_product_attention,
        {
            "query": MainTensor(HEADS),
            "key": Tensor(HEADS),
            "value": Tensor(HEADS),
            "kv_lens": INTEGERS,
        },
    ),
    "flash_attn_func": (
        nv.flash.flash_attn_func,
        {
            "q": MainTensor(HEADS),
            "k": Tensor(HEADS),
            "v": Tensor(HEADS),
            "dropout_p": DROPOUT,
            "softmax_scale": SCALE,
            "causal": FLAG,
        },
    ),
    "flash_attn_varlen_func": (
        nv.flash.flash_attn_varlen_func,
        {
            "q": MainTensor(PACKED),
            "k": Tensor(PACKED),
            "v": Tensor(PACKED),
            "cu_seqlens_q": Tensor(BOUNDS),
            "cu_seqlens_k": Tensor(BOUNDS),
            "dropout_p": DROPOUT,
            "softmax_scale": SCALE,
            "causal": FLAG,
        },
    ),
    "flash_attn_forward": (
        lambda **kwargs: nv.flash_attn_forward(BIDIRECTIONAL, **kwargs),
        {
            "query": MainTensor(HEADS),
            "key": Tensor(HEADS),
            "value": Tensor(HEADS),
            "attention_mask": mask(MASK),
            "scaling": SCALE,
            "dropout": DROPOUT,
        },
    ),
    "vit_block": (
        nv.vit_block,
        {
            "x": MainTensor(X),
            "params": Choice(ROTARY, OBJECTS, NONE, NUMBERS, {"list": [ROTARY], "tensor": X}),
            "rope": Choice(
                (TABLE, TABLE),
                OBJECTS,
                NONE,
                NUMBERS,
                {"tensor": TABLE, "one": (TABLE,), "Nones": (None, None), "texts": ("a", "b")},
                {"meta": (TABLE, TABLE.to("meta")), "sparse": (TABLE.to_sparse(), TABLE)},
            ),
            "attn_mask": mask(MASK),
        },
    ),
    "vit_block ": (
        nv.vit_block,
        {"x": MainTensor(X), "params": Choice(BLOCK), "kv_lens": INTEGERS},
    ),
    "vit_block  ": (
        nv.vit_block,
        {"x": MainTensor(X[:1]), "params": Choice(BLOCK), "cu_seqlens": optional(BOUNDS)},
    ),
    "vit_encoder": (
        nv.vit_encoder,
        {
            "x": MainTensor(X),
            "params": Choice(ENCODER, OBJECTS, NONE, NUMBERS, {"block": BLOCK, "tensor": X}),
            "rope": Choice(None, OBJECTS, NUMBERS, {"given": (TABLE, TABLE)}),
            "attn_mask": mask(MASK),
        },
    ),
    "vit_encoder ": (
        nv.vit_encoder,
        {"x": MainTensor(X), "params": Choice(ENCODER), "kv_lens": INTEGERS},
    ),
    "supports": (
        nv.supports,
        {
            "name": Choice("layer_norm", OBJECTS, NONE, NUMBERS),
            "dtype": Choice("float32", without("str"), NONE, NUMBERS),
            "target": Choice("trn2", OBJECTS, NUMBERS),
            "width": Choice(12, OBJECTS, NONE, {"bool": True, "float": 12.0, "negative": -1}),
        },
    ),
    "supports ": (
        nv.supports,
        {
            "name": Choice("vit_block"),
            **{s: Choice(1) for s in ("batch", "tokens", "width", "heads", "head_dim", "hidden")},
            "gated": Choice(False, OBJECTS, NONE, {"int": 2, "float": 0.5}),
            "inner_norm": Choice(False, OBJECTS, NONE, {"int": 2}),
            "qk_norm": Choice(0, OBJECTS, NONE, {"int": 3, "negative": -1}),
            "rope": Choice(0, OBJECTS, NONE, {"int": 3, "negative": -1}),
            "bias_heads": Choice(0, OBJECTS, NONE, {"float": 0.5, "negative": -1}),
        },
    ),
    **{
        name: (
            getattr(nv, name),
            {"model": Choice(torch.nn.Sequential(torch.nn.LayerNorm(4)), OBJECTS, NONE, NUMBERS)},
        )
        for name in ("apply", "report", "undo", "hook_layers")
    },
    "warmup": (
        lambda model, dtype, device: nv.warmup(model, (2, 4), dtype=dtype, device=device),
        {
            "model": Choice(torch.nn.LayerNorm(4).eval(), without("class"), NONE, NUMBERS),
            "dtype": Choice(torch.float32, OBJECTS, NUMBERS),
            "device": Choice("cpu", without("str"), {"unknown": "elsewhere"}, {"float": 1.5}),
        },
    ),
    "diffusers_attn_processors": (
        nv.diffusers_attn_processors,
        {"model": Choice(ATTENTIVE, OBJECTS, NONE, NUMBERS)},
    ),
    "register_with_transformers": (
        nv.register_with_transformers,
        {"name": Choice("neuron_vit_test", without("str"), NONE, NUMBERS)},
    ),
}

FORM = {name: getattr(BLOCK, name) for name in nv.BlockParams.__dataclass_fields__}
NORMED = {
    "inner_norm": "layer",
    **{name: torch.randn(20) for name in ("inner_weight", "inner_bias", "gate_bias", "fc1_bias")},
    "gate_weight": torch.randn(12, 20),
    "qk_norm": "layer",
    **{f"{kind}_norm_{part}": torch.randn(4) for kind in "qk" for part in ("weight", "bias")},
    **{name: torch.randn(12) for name in ("proj_bias", "norm2_bias", "fc2_bias")},
    **{name: torch.randn(12) for name in ("scale1", "scale2")},
}
REQUIRED = ("norm1_weight", "qkv_weight", "proj_weight", "norm2_weight", "fc1_weight", "fc2_weight")


def field(name, value):
    """What the field of BlockParams takes."""
    if isinstance(value, torch.Tensor):
        # A missing weight of a norm that is asked for is wrong as well.
        needed = name in REQUIRED or name in ("gate_weight", "q_norm_weight", "k_norm_weight")
        return Tensor(value, optional=not needed)
    if name == "num_heads":
        return Choice(value, OBJECTS, NONE, {"float": 2.0, "bool": True, "zero": 0, "negative": -2})
    if name == "attention_scale":
        return number(value, NONE)
    if name.endswith("eps"):
        return EPS
    if name == "activation":
        return NAME
    return Choice(value, OBJECTS, NUMBERS, {"unknown": "batch"}, {} if name != "norm" else NONE)


TABLE_OF_CALLS["BlockParams"] = (
    nv.BlockParams,
    {name: field(name, value) for name, value in {**FORM, **NORMED}.items()},
)
TABLE_OF_CALLS["EncoderParams"] = (
    nv.EncoderParams,
    {
        "stacks": Choice(ENCODER.stacks, OBJECTS, NONE, NUMBERS),
        "form": Choice(ENCODER.form, OBJECTS, NONE, NUMBERS),
    },
)
TABLE_OF_CALLS["EncoderParams "] = (
    nv.EncoderParams.from_blocks,
    {
        "blocks": Choice(
            [BLOCK], OBJECTS, NONE, NUMBERS, {"Nones": [None], "tensors": X, "none of": []}
        )
    },
)
TABLE_OF_CALLS["EncoderParams  "] = (
    nv.EncoderParams.from_module,
    {"layers": Choice([], without("list"), NONE, NUMBERS)},
)


@pytest.mark.parametrize(
    ("call", "argument"),
    [(call, argument) for call, (_, arguments) in TABLE_OF_CALLS.items() for argument in arguments],
)
def test_a_wrong_value_is_named(call, argument):
    function, arguments = TABLE_OF_CALLS[call]
    good = {name: kind.value for name, kind in arguments.items()}
    failures = []
    for name, value in arguments[argument].wrong():
        try:
            function(**{**good, argument: value})
        except (ValueError, TypeError, nv.NeuronVitUnsupported) as error:
            text = str(error)
            if not text.startswith(f"neuron-vit: {call.strip()}") or argument not in text:
                failures.append(f"{name}: {type(error).__name__}: {text}")
        except Exception as error:
            failures.append(f"{name}: {type(error).__name__}: {error}")
        else:
            failures.append(f"{name}: no error")
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("call", TABLE_OF_CALLS)
def test_the_values_that_the_table_starts_from_are_right(call):
    function, arguments = TABLE_OF_CALLS[call]
    if call == "EncoderParams  ":
        pytest.skip("needs the layers of a model library")
    if call == "register_with_transformers":
        pytest.importorskip("transformers")
    function(**{name: kind.value for name, kind in arguments.items()})


def test_every_public_function_is_in_the_table():
    functions = {
        name
        for name in nv.__all__
        if callable(getattr(nv, name)) and not name.startswith("NeuronVit")
    }
    functions -= {"Report", "Support", "Warmup"}  # what functions return
    without_arguments = {"last_path", "launches", "reset_launches"}
    assert functions - without_arguments <= {call.strip() for call in TABLE_OF_CALLS}


@pytest.mark.parametrize("params", [BLOCK, ENCODER])
@pytest.mark.parametrize("wrong", [(None, 3), ("elsewhere",), (object(),), ([],)])
def test_wrong_conversions_are_named(params, wrong):
    name = type(params).__name__
    with pytest.raises(TypeError, match=f"neuron-vit: {name}.to: the arguments are"):
        params.to(*wrong)
    with pytest.raises(ValueError, match="neuron-vit: BlockParams: qkv_weight has dtype int32"):
        params.to(torch.int32)


@pytest.mark.parametrize("layer", [None, 3, "layer", torch.nn.Linear(3, 3), torch.randn(3)])
def test_what_is_no_layer_is_named(layer):
    with pytest.raises((TypeError, nv.NeuronVitUnsupported), match="neuron-vit: BlockParams.from"):
        nv.BlockParams.from_module(layer)
