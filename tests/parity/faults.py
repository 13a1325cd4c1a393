"""Deliberate faults in the kernels: each must turn the parity rule red.

A fault is one edit of one source file: a line that a tired author could have written. It is applied
to a copy of `nki_src` imported under another name, and the kernel is run on one small case. The
text that is replaced must occur exactly once, so a fault cannot quietly stop being applied when the
kernel changes. What only loops on the device do wrong is shown with a limit that makes a small case
loop.
"""

import importlib
import shutil
import sys
from contextlib import contextmanager
from dataclasses import dataclass

from .cases import row
from .kernels import SOURCES


@dataclass(frozen=True)
class Fault:
    kernel: str
    name: str
    file: str
    old: str
    new: str
    settings: dict
    dtype: str = "fp32"
    loops: int = 0  # layers of an iteration if they are a loop on the device, however few they are
    lnc: int = 1  # programs that share the launch

    @property
    def id(self):
        return f"{self.kernel}: {self.name}"

    def case(self):
        return row(self.kernel, dtypes=(self.dtype,), lnc=self.lnc, **self.settings)[0]

    def edit(self, text):
        found = text.count(self.old)
        if found != 1:
            raise LookupError(
                f"fault '{self.id}': the text to replace occurs {found} times in {self.file}, "
                f"expected once; adapt the fault to the kernel:\n{self.old}"
            )
        return text.replace(self.old, self.new)


@contextmanager
def edited_kernels(fault, directory, loops=0):
    """The importable name of a copy of `nki_src` below `directory` with the fault in it.

    fault: None leaves the copy unchanged, except for `loops`, see `Fault`.
    """
    name = "nki_src_with_a_fault"
    shutil.copytree(SOURCES, directory / name, ignore=shutil.ignore_patterns("__pycache__"))
    if fault is not None:
        path = directory / name / fault.file
        path.write_text(fault.edit(path.read_text()))
        loops = fault.loops
    if loops:
        path = directory / name / "limits.py"
        most = 1 if loops == 1 else 2 * loops
        path.write_text(
            path.read_text() + f"\nINSTRUCTIONS_MAX = {most}\n\n\n"
            "def block_instructions(images, plan, sizes):\n    return 1\n"
        )
    sys.path.insert(0, str(directory))
    importlib.invalidate_caches()
    try:
        yield name
    finally:
        sys.path.remove(str(directory))
        for module in [module for module in sys.modules if module.split(".")[0] == name]:
            del sys.modules[module]


NORM = dict(rows=129, width=200)
FAINT = dict(rows=20, width=200, values="faint", eps=1e-6)
EQUAL = dict(rows=20, width=768, values="equal", eps=1e-12)
# Two key tiles, the last with 69 of 128 rows, and a query tile of the same size.
ATTENTION = dict(tokens=197, head_dim=32)
SCORES = dict(tokens=64, keys=577, head_dim=64, values="logits", scale=1.0)
BIASED = dict(tokens=150, keys=140, head_dim=32, heads=3, mask="bias")
SEGMENTS = dict(tokens=150, head_dim=32, segments=(1, 100, 1, 1, 47))
LINEAR = dict(tokens=65, in_features=200, out_features=700)
MLP = dict(tokens=65, width=200, hidden=300)
INNER = dict(MLP, norm="layer")
ADA = dict(tokens=65, width=200, batch=3)
SUM = dict(ADA, residual=True, gate=True)
BLOCK = dict(tokens=17, width=136, heads=2, head_dim=32, hidden=200, batch=2, layer_scale=True)
ROTATED = dict(BLOCK, tokens=50, rope="half", prefix=2)
# Two images share a tile, the third has one of its own.
WINDOWS = dict(BLOCK, tokens=49, batch=3, mask="bias", axes="BHQ")
# Heads of a size that is made as rows, so that the rotation is too.
ROTATED_ROWS = dict(ROTATED, head_dim=40)
# One image of more than a row tile, whose tokens two programs share.
SHARED = dict(BLOCK, tokens=150, batch=1)
NORMED = dict(BLOCK, heads=3, qk_norm="layer")

FAULTS = [
    # layer_norm and rms_norm
    Fault(
        "layer_norm", "eps forgotten", "norm.py",
        "self.scaled, self.eps)", "self.scaled, 0.0)", FAINT,
    ),
    Fault(
        "layer_norm", "variance of a sample instead of the population", "norm.py",
        "            self.scaled = 1.0\n",
        "            self.scaled = rows.shape[1] / (rows.shape[1] - 1)\n", NORM,
    ),
    Fault(
        "layer_norm", "bias dropped", "norm.py",
        "values, nl.multiply, self.deviation, nl.add, self.bias)",
        "values, nl.multiply, self.deviation, nl.add, None)", NORM,
    ),
    Fault(
        "layer_norm", "weight dropped", "norm.py",
        "values, nl.add, self.minus_mean, nl.multiply, self.weight)",
        "values, nl.add, self.minus_mean, nl.multiply, None)", NORM,
    ),
    Fault(
        "layer_norm", "mean of equal values left with its rounding", "norm.py",
        "                operand0=-1.0 / self.rows.shape[1],\n",
        "                operand0=0.0,\n", EQUAL,
    ),
    Fault(
        "layer_norm", "residual subtracted", "norm.py",
        "data1=update, data2=other, op=nl.add)", "data1=update, data2=other, op=nl.subtract)",
        dict(NORM, residual=True),
    ),
    Fault(
        "layer_norm", "sum returned without the residual", "norm.py",
        "            nisa.tensor_copy(dst=block, src=rows[:, low:high])\n", "",
        dict(NORM, residual=True),
    ),
    Fault(
        "layer_norm", "last row of the last tile skipped", "norm.py",
        "last = min(first + PARTITIONS, end)", "last = min(first + PARTITIONS, end - 1)",
        dict(NORM, rows=130),
    ),
    Fault(
        "rms_norm", "eps forgotten", "norm.py",
        "self.scaled, self.eps)", "self.scaled, 0.0)", FAINT,
    ),
    Fault(
        "rms_norm", "mean subtracted", "norm.py",
        'residual, eps, "rms")', 'residual, eps, "layer")', NORM,
    ),
    Fault(
        "rms_norm", "weight dropped", "norm.py",
        "values, nl.multiply, self.deviation, nl.multiply, self.weight)",
        "values, nl.multiply, self.deviation, nl.multiply, None)", NORM,
    ),
    # ada_layer_norm and ada_rms_norm
    Fault(
        "ada_layer_norm", "scale without the one", "norm.py",
        "scale_rows(self.weight, scale_row, nl.add, 1.0,",
        "scale_rows(self.weight, scale_row, nl.add, 0.0,", ADA, "bf16",
    ),
    Fault(
        "ada_layer_norm", "weight of the norm dropped", "norm.py",
        "scale_row, nl.add, 1.0, nl.multiply, weight)",
        "scale_row, nl.add, 1.0, nl.multiply, None)", dict(ADA, affine=True), "bf16",
    ),
    Fault(
        "ada_layer_norm", "bias of the norm not scaled", "norm.py",
        "scale_rows(offset, scale_row, nl.add, 1.0, nl.multiply, bias)",
        "nisa.tensor_copy(dst=offset, src=bias)", dict(ADA, affine=True), "bf16",
    ),
    Fault(
        "ada_layer_norm", "shift dropped where the norm has a bias", "norm.py",
        "dst=offset, data1=offset, data2=self.bias, op", "dst=offset, data1=offset, data2=bias, op",
        dict(ADA, affine=True), "bf16",
    ),
    Fault(
        "ada_layer_norm", "modulation of the first image for all", "norm.py",
        "(batch * width,)), image * width, width)", "(batch * width,)), 0, width)", ADA, "bf16",
    ),
    Fault(
        "ada_layer_norm", "images before an image modulated again", "norm.py",
        "low = max(begin, image * length)", "low = begin", ADA, "bf16",
    ),
    Fault(
        "ada_layer_norm", "last token of an image skipped", "norm.py",
        "high = min(end, (image + 1) * length)", "high = min(end, (image + 1) * length - 1)", ADA,
        "bf16",
    ),
    Fault(
        "ada_layer_norm", "gate dropped", "norm.py",
        "                    modulation.gate,\n", "                    None,\n", SUM, "bf16",
    ),
    Fault(
        "ada_layer_norm", "gate on the residual", "norm.py",
        "dst=update, data1=block, data2=gate", "dst=update, data1=other, data2=gate", SUM, "bf16",
    ),
    Fault(
        "ada_layer_norm", "scale and shift exchanged", "norm.py",
        "scale_row = image_row(scale, image)", "scale_row = image_row(shift, image)", ADA, "bf16",
    ),
    Fault(
        "ada_rms_norm", "shift dropped", "norm.py",
        "target = self.dst if self.bias == None else values\n",
        "target = self.dst\n            self.bias = None\n", ADA, "bf16",
    ),
    Fault(
        "ada_rms_norm", "mean subtracted", "norm.py",
        'None, residual, gate, eps, "rms")', 'None, residual, gate, eps, "layer")', ADA,
    ),
    # linear
    Fault(
        "linear", "bias dropped", "linear.py",
        "weight, weight_layout, bias)", "weight, weight_layout, None)",
        LINEAR,
    ),
    Fault(
        "linear", "bias of the first columns used for all", "project.py",
        "return row[0:count, low:high]", "return row[0:count, 0 : high - low]", LINEAR,
    ),
    Fault(
        "linear", "last chunk of the contraction skipped", "tiles.py",
        "for chunk in range(ceil_div(depth, PARTITIONS) if chunks == None else chunks):",
        "for chunk in range(depth // PARTITIONS):", LINEAR,
    ),
    Fault(
        "linear", "last feature of the contraction skipped", "tiles.py",
        "size = min(PARTITIONS, depth - chunk * PARTITIONS)",
        "size = min(PARTITIONS, depth - chunk * PARTITIONS - 1)", LINEAR, "bf16",
    ),
    Fault(
        "linear", "each chunk overwrites the sum", "tiles.py",
        "accumulate=(chunk > 0 or not fresh),", "accumulate=False,", LINEAR,
    ),
    Fault(
        "linear", "square weight not transposed", "project.py",
        'if layout == "out_in":', 'if layout == "never":',
        dict(tokens=65, in_features=192, out_features=192, layout="out_in"),
    ),
    # mlp
    Fault(
        "mlp", "tanh approximation for exact GELU", "mlp.py",
        "return nl.gelu\n", "return nl.gelu_apprx_tanh\n", MLP,
    ),
    Fault(
        "mlp", "exact GELU for the tanh approximation", "mlp.py",
        "return nl.gelu_apprx_tanh\n", "return nl.gelu\n", dict(MLP, activation="gelu_tanh"),
    ),
    Fault(
        "mlp", "tanh approximation for quick GELU", "mlp.py",
        "return nl.gelu_apprx_sigmoid\n", "return nl.gelu_apprx_tanh\n",
        dict(MLP, activation="quick_gelu"),
    ),
    Fault(
        "mlp", "first bias dropped", "mlp.py",
        "            vectors.up,\n            weights.activation,\n",
        "            None,\n            weights.activation,\n", MLP, "bf16",
    ),
    Fault(
        "mlp", "first bias of the first chunk used for all", "project.py",
        "else self.bias[0:size, chunk : chunk + 1],", "else self.bias[0:size, 0:1],",
        MLP, "bf16",
    ),
    Fault(
        "mlp", "second bias dropped", "mlp.py",
        "weights.layout, bias)", "weights.layout, None)",
        MLP, "bf16",
    ),
    Fault(
        "mlp", "tail of a vector shifted by one", "tiles.py",
        "src=vector[base + full * step : base + here].expand_dim(0),",
        "src=vector[base + full * step - 1 : base + here - 1].expand_dim(0),", MLP, "bf16",
    ),
    Fault(
        "mlp", "inner norm dropped", "mlp.py",
        "inner = None if norm == None else (norm_weight, norm_bias, norm_eps, norm)\n"
        "    weights = plain_weights(",
        "inner = None\n    weights = plain_weights(", INNER, "bf16",
    ),
    Fault(
        "mlp", "first bias dropped before an inner norm", "mlp.py",
        "biased(parts[0], part_of(self.vectors.up, here, low, high))", "parts[0]", INNER, "bf16",
    ),
    Fault(
        "mlp", "tail tile of an inner norm dropped", "mlp.py",
        "self.normed.push(self.rows[0:here, tile, :])", "self.normed.push(self.rows[:, tile, :])",
        INNER, "bf16",
    ),
    Fault(
        "mlp", "weight of the inner norm dropped", "mlp.py",
        "                vectors.norm_weight,\n", "                None,\n", INNER, "bf16",
    ),
    Fault(
        "mlp", "relu for silu", "mlp.py",
        "return nl.silu\n", "return nl.relu\n", dict(MLP, activation="silu"), "bf16",
    ),
    # swiglu_mlp
    Fault(
        "swiglu_mlp", "gate and up exchanged", "mlp.py",
        "        gate = (gate_weight, gate_bias, 0)\n        up = (up_weight, up_bias, 0)\n",
        "        up = (gate_weight, gate_bias, 0)\n        gate = (up_weight, up_bias, 0)\n",
        MLP, "bf16",
    ),
    Fault(
        "swiglu_mlp", "wrong half of a packed matrix activated", "mlp.py",
        "gate = (gate_weight, gate_bias, 0)\n        up = (gate_weight, gate_bias, hidden)\n",
        "up = (gate_weight, gate_bias, 0)\n        gate = (gate_weight, gate_bias, hidden)\n",
        dict(MLP, packed="gate first"), "bf16",
    ),
    Fault(
        "swiglu_mlp", "gate-last order ignored", "mlp.py",
        "        gate = (up_weight, up_bias, hidden)\n        up = (up_weight, up_bias, 0)\n",
        "        gate = (up_weight, up_bias, 0)\n        up = (up_weight, up_bias, hidden)\n",
        dict(MLP, packed="gate last"), "bf16",
    ),
    Fault(
        "swiglu_mlp", "bias of up multiplied instead of added", "mlp.py",
        "data=up, op0=nl.add, operand0=up_bias, op1", "data=up, op0=nl.multiply, "
        "operand0=up_bias, op1", MLP, "bf16",
    ),
    Fault(
        "swiglu_mlp", "gate bias of the first half of a packed vector for up", "mlp.py",
        "return load_columns(operand[1], operand[2],", "return load_columns(operand[1], 0,",
        dict(MLP, packed="gate first"), "bf16",
    ),
    Fault(
        "swiglu_mlp", "gate bias dropped", "mlp.py",
        "nisa.activation(dst=active, op=activation, data=gate, bias=gate_bias)",
        "nisa.activation(dst=active, op=activation, data=gate)", MLP, "bf16",
    ),
    Fault(
        "swiglu_mlp", "second bank of tokens written over the first", "mlp.py",
        "low = token + part * BANK", "low = token",
        dict(tokens=600, width=64, hidden=100), "bf16",
    ),
    Fault(
        "swiglu_mlp", "gate added instead of multiplied", "mlp.py",
        "data1=up, data2=active, op=nl.multiply", "data1=up, data2=active, op=nl.add",
        dict(MLP, bias=False, norm="layer"), "bf16",
    ),
    Fault(
        "swiglu_mlp", "gate bias row of a packed vector from its start", "mlp.py",
        "return broadcast_row(operand[1], operand[2],", "return broadcast_row(operand[1], 0,",
        dict(INNER, packed="gate first"), "bf16",
    ),
    # attention
    Fault(
        "attention", "scale forgotten", "attend.py",
        "scale=self.scale,", "scale=1.0,", ATTENTION, "bf16",
    ),
    Fault(
        "attention", "scale one per cent off", "attend.py",
        "scale=self.scale,", "scale=1.01 * self.scale,", ATTENTION,
    ),
    Fault(
        "attention", "last key missing from the product with the values", "attend.py",
        "size = min(PARTITIONS, self.k_len - block * PARTITIONS)",
        "size = min(PARTITIONS, self.k_len - 1 - block * PARTITIONS)", ATTENTION, "bf16",
    ),
    Fault(
        "attention", "one key beyond the last", "attend.py",
        "size = min(PARTITIONS, self.k_len - block * PARTITIONS)",
        "size = min(PARTITIONS, self.k_len + 1 - block * PARTITIONS)", ATTENTION, "bf16",
    ),
    Fault(
        "attention", "first key tile overwritten", "attend.py",
        "accumulate=(block > 0),", "accumulate=False,", ATTENTION, "bf16",
    ),
    Fault(
        "attention", "maximum not subtracted", "attend.py",
        "operand0=SHIFT_STEP,", "operand0=0.0,", SCORES, "bf16",
    ),
    Fault(
        "attention", "maximum of the first 512 keys only", "attend.py",
        "if self.blocks == 1:\n", "if self.blocks > 0:\n", SCORES,
    ),
    Fault(
        "attention", "denominator doubled", "attention.py",
        "value=1.0)", "value=2.0)", ATTENTION, "bf16",
    ),
    Fault(
        "attention", "values of the first head for all", "attend.py",
        "moving=self.values[0:size, block, head, :],", "moving=self.values[0:size, block, 0, :],",
        ATTENTION, "bf16",
    ),
    Fault(
        "attention", "first image read for all", "attention.py",
        "offset=image * strides[0] + first", "offset=first",
        dict(ATTENTION, batch=2, layout="packed"), "bf16",
    ),
    Fault(
        "attention", "token stride of a dense tensor in a view", "attention.py",
        "pattern=[[strides[2], high - low]", "pattern=[[dim, high - low]",
        dict(ATTENTION, layout="transposed"), "bf16",
    ),
    Fault(
        "attention", "second block of queries stored over the first", "attention.py",
        "out, image, start, size, first, rows)\n", "out, image, 0, size, first, rows)\n",
        dict(tokens=577, keys=49, head_dim=32), "bf16",
    ),
    Fault(
        "attention", "second pass of heads stored over the first", "attention.py",
        "out, image, start, size, first, rows)\n", "out, image, start, size, 0, rows)\n",
        dict(tokens=17, heads=70, head_dim=32), "bf16",
    ),
    Fault(
        "attention", "factor of the bias forgotten", "score_bias.py",
        "factor = 1.0 / scale", "factor = 1.0", BIASED, "bf16",
    ),
    Fault(
        "attention", "bias left out of the maxima", "attend.py",
        "self.bias.add_rows(target, start, tile, low, window)", "pass",
        dict(BIASED, mask="huge"),
    ),
    Fault(
        "attention", "bias of the first tile of queries for all", "score_bias.py",
        "rows = self.rows(head, tile)\n            for",
        "rows = self.rows(head, 0)\n            for", BIASED, "bf16",
    ),
    Fault(
        "attention", "bias of the first head for all", "score_bias.py",
        "0 if self.shared else head, :]", "0, :]", BIASED, "bf16",
    ),
    Fault(
        "attention", "bias of the first image for all", "score_bias.py",
        "here = image if batch > 1 else 0", "here = 0", dict(BIASED, batch=2), "bf16",
    ),
    Fault(
        "attention", "bias of the first block of queries for all", "score_bias.py",
        "token = start if q_len > 1 else 0", "token = 0",
        dict(BIASED, tokens=577, keys=49), "bf16",
    ),
    Fault(
        "attention", "bias of the first pass of heads for all", "score_bias.py",
        "low = first if heads > 1 else 0\n        high = first + count if",
        "low = 0\n        high = count if",
        dict(BIASED, tokens=17, heads=70), "bf16",
    ),
    Fault(
        "attention", "bias of the first key tile for all", "score_bias.py",
        "stationary=rows[0:count, low : low + keys]", "stationary=rows[0:count, 0:keys]", BIASED,
        "bf16",
    ),
    Fault(
        "attention", "minus infinity not clamped", "score_bias.py",
        "value=-self.scaling.fill", 'value=float("-inf")', dict(BIASED, mask="infinite"), "bf16",
    ),
    Fault(
        "attention", "a query without a key gets a mean", "attend.py",
        "return self.bias.bounded(largest)", "return largest", dict(BIASED, mask="bool"),
    ),
    Fault(
        "attention", "a query without a key gets NaN", "attend.py",
        "operand0=SMALLEST_SUM", "operand0=0.0", dict(BIASED, mask="bool"), "bf16",
    ),
    Fault(
        "attention", "mask turned round", "score_bias.py",
        "scale=fill, bias=-fill", "scale=-fill", dict(BIASED, mask="bool"), "bf16",
    ),
    Fault(
        "attention", "fill that a score of 1e4 passes", "score_bias.py",
        "MASK_STEP = 16384.0\n", "MASK_STEP = 0.5\n",
        dict(BIASED, mask="bool", values="logits", scale=1.0), "fp16",
    ),
    Fault(
        "attention", "one key more than the length", "score_bias.py",
        "self.positions, nl.greater_equal, length", "self.positions, nl.greater, length",
        dict(tokens=20, keys=50, lens=(31,), head_dim=32),
    ),
    Fault(
        "attention", "length of the first image for all", "score_bias.py",
        "load_row(self.kv_lens, image, 1)", "load_row(self.kv_lens, 0, 1)",
        dict(tokens=20, keys=50, batch=2, lens=(31, 50), head_dim=32),
    ),
    Fault(
        "attention", "a segment begins one key late", "score_bias.py",
        "op0=nl.greater_equal,\n                operand0=starts",
        "op0=nl.greater,\n                operand0=starts", SEGMENTS,
    ),
    Fault(
        "attention", "a segment begins one query late", "score_bias.py",
        "op0=nl.less_equal", "op0=nl.less", SEGMENTS,
    ),
    Fault(
        "attention", "segments beyond the first 128 bounds ignored", "score_bias.py",
        "chunks = ceil_div(total, PARTITIONS)", "chunks = 1",
        dict(tokens=150, head_dim=32, segments="ones"),
    ),
    Fault(
        "attention", "heads dealt to the groups in turn", "attention.py",
        "head = (first + start) // group\n        stop = min((head + 1) * group - first, count)",
        "head = (first + start) % (count // group)\n        stop = start + 1",
        dict(ATTENTION, heads=4, kv_heads=2), "bf16",
    ),
    # vit_block
    Fault(
        "vit_block", "first residual dropped", "block.py",
        "            self.stream,\n            self.normed,\n",
        "            None,\n            self.normed,\n", BLOCK, "bf16",
    ),
    Fault(
        "vit_block", "second residual dropped", "block.py",
        "            stream,\n            self.then,\n",
        "            None,\n            self.then,\n", BLOCK, "bf16",
    ),
    Fault(
        "vit_block", "first LayerScale dropped", "block.py",
        "            vectors.scale1,\n            self.stream,\n",
        "            None,\n            self.stream,\n", BLOCK, "bf16",
    ),
    Fault(
        "vit_block", "second LayerScale dropped", "block.py",
        "            self.vectors.scale2,\n            stream,\n",
        "            None,\n            stream,\n", BLOCK, "bf16",
    ),
    Fault(
        "vit_block", "projection bias dropped", "block.py",
        "residual_rows(group, group.begin + start, size, vectors.proj_bias)",
        "residual_rows(group, group.begin + start, size, None)",
        dict(BLOCK, layer_scale=False), "bf16",
    ),
    Fault(
        "vit_block", "projection bias not scaled", "parameters.py",
        'scaled_row(weights["proj_bias"], self.scale1)', 'scaled_row(weights["proj_bias"], None)',
        BLOCK, "bf16",
    ),
    Fault(
        "vit_block", "second bias of the MLP dropped", "block.py",
        "            form.flight,\n            vectors.fc2_bias,\n",
        "            form.flight,\n            None,\n", BLOCK, "bf16",
    ),
    Fault(
        "vit_block", "first norm's parameters in the second norm", "parameters.py",
        'self.norm_weight = load_columns(weights["norm2_weight"],',
        'self.norm_weight = load_columns(weights["norm1_weight"],', BLOCK, "bf16",
    ),
    Fault(
        "vit_block", "eps of the norms forgotten", "group.py",
        "self.eps = options.eps", "self.eps = 0.0",
        dict(BLOCK, values="faint", eps=1e-6),
    ),
    Fault(
        "vit_block", "RMS norm for layer norm", "group.py",
        "self.norm = options.norm", 'self.norm = "rms"', dict(BLOCK, values="offset"), "bf16",
    ),
    Fault(
        "vit_block", "bias of the norms dropped", "norm.py",
        "self.waiting.dst, self.weight, self.bias)", "self.waiting.dst, self.weight, None)", BLOCK,
        "bf16",
    ),
    Fault(
        "vit_block", "queries used as keys", "block.py",
        "part * embed + first * form.dim", "first * form.dim", BLOCK, "bf16",
    ),
    Fault(
        "vit_block", "keys used as values", "block.py",
        "2 * form.heads * form.dim + low", "form.heads * form.dim + low", BLOCK, "bf16",
    ),
    Fault(
        "vit_block", "value bias dropped", "parameters.py",
        'self.values = broadcast_row(weights["qkv_bias"], 2 * embed, embed)', "self.values = None",
        BLOCK, "bf16",
    ),
    Fault(
        "vit_block", "query and key bias dropped", "parameters.py",
        "        if not form.as_rows:\n", "        if form.as_rows:\n", BLOCK, "bf16",
    ),
    Fault(
        "vit_block", "keys of the first image for all", "block.py",
        "keys.tokens(token, token + length)", "keys.tokens(0, length)",
        dict(BLOCK, tokens=65, batch=3), "bf16",
    ),
    Fault(
        "vit_block", "last key ignored", "block.py",
        "keys.tokens(token, token + length)", "keys.tokens(token, token + length - 1)",
        dict(BLOCK, tokens=65), "bf16",
    ),
    Fault(
        "vit_block", "attention scale forgotten", "group.py",
        "self.scale = options.attention_scale", "self.scale = 1.0", BLOCK, "bf16",
    ),
    # vit_encoder
    Fault(
        "vit_encoder", "weights of the first layer for all", "parameters.py",
        "weights[name].select(0, index)", "weights[name].select(0, 0)",
        dict(BLOCK, layers=2), "bf16",
    ),
    Fault(
        "vit_encoder", "first norm of the layer before", "encoder.py",
        "following_vectors = AttentionVectors(layers[upcoming], form)",
        "following_vectors = AttentionVectors(layers[layer], form)",
        dict(BLOCK, layers=2), "bf16",
    ),
    Fault(
        "vit_encoder", "ring of weights with one slot", "project.py",
        "self.next = (self.next + 1) % self.slots", "self.next = 0",
        dict(BLOCK, layers=2, width=768, heads=4, hidden=3072), "bf16",
    ),
    Fault(
        "vit_encoder", "ring of weights one slot too short for a slab", "limits.py",
        "return slots + RING_AHEAD, size", "return slots - 1, size",
        dict(BLOCK, layers=2, width=768, heads=4, hidden=3072), "bf16",
    ),
    Fault(
        "vit_encoder", "rest of a layer with the weights of the first", "encoder.py",
        "rest = Rest(group, weights, rest_vectors, form, then)",
        "rest = Rest(group, layers[0], rest_vectors, form, then)",
        dict(BLOCK, layers=2), "bf16",
    ),
    Fault(
        "vit_encoder", "rows of the first group for the second in the next layer", "block.py",
        "        self.group.normed.push(rows)\n",
        "        self.group.normed.push(self.group.tile(0)[0 : rows.shape[0], :])\n",
        dict(BLOCK, layers=2, tokens=150), "bf16",
    ),
    Fault(
        "vit_encoder", "attention of the layer before at the end of an iteration", "encoder.py",
        "self.nexts = blocks_of(self.weights, self.per_iteration,",
        "self.nexts = blocks_of(self.weights, 0,", dict(BLOCK, layers=3), "bf16", loops=1,
    ),
    Fault(
        "vit_encoder", "a layer of the loop again behind it", "encoder.py",
        "layers_of(self.weights, loops * self.per_iteration, self.layers)",
        "layers_of(self.weights, loops * self.per_iteration - 1, self.layers - 1)",
        dict(BLOCK, layers=3), "bf16", loops=1,
    ),
    Fault(
        "vit_encoder", "one layer on at the end of an iteration of two", "encoder.py",
        "self.nexts = blocks_of(self.weights, self.per_iteration,",
        "self.nexts = blocks_of(self.weights, 1,", dict(BLOCK, layers=5), "bf16", loops=2,
    ),
    Fault(
        "vit_encoder", "ring of weights where the last iteration left it", "encoder.py",
        "            self.form.ring.next = 0\n", "            pass\n",
        dict(BLOCK, layers=4, width=768, heads=4, hidden=2304), "bf16", loops=1,
    ),
    Fault(
        "vit_encoder", "mask of the first images for all chunks", "encoder.py",
        "mask = self.images_of(mask, chunk)", "mask = self.images_of(mask, 0)",
        dict(BLOCK, tokens=600, batch=4, mask="bias", axes="B1Q"), "bf16", loops=1,
    ),
    Fault(
        "vit_block", "tables of the first images for all chunks", "encoder.py",
        "cos = self.images_of(cos, chunk)", "cos = self.images_of(cos, 0)",
        dict(ROTATED, tokens=600, batch=4, tables="own"), "bf16", loops=1,
    ),
    Fault(
        "vit_block", "the last, shorter chunk forgotten", "encoder.py",
        "    if rest != None:\n        rest.chunk(0)\n", "", dict(BLOCK, tokens=600, batch=3),
        "bf16", loops=1,
    ),
    # two programs
    Fault(
        "vit_block", "queries of both programs from the first token", "block.py",
        "            for start in range(form.begin, form.end, form.query_block):",
        "            for start in range(0, form.end - form.begin, form.query_block):",
        SHARED, "bf16", lnc=2,
    ),
    Fault(
        "vit_block", "bias of the queries from the first token", "score_bias.py",
        "        start = self.begin + index % self.blocks * self.block",
        "        start = index % self.blocks * self.block",
        dict(SHARED, mask="bias"), "bf16", lnc=2,
    ),
    Fault(
        "vit_block", "residual of the first program's rows", "block.py",
        "residual_rows(group, group.begin + start, size, vectors.proj_bias)",
        "residual_rows(group, start, size, vectors.proj_bias)", SHARED, "bf16", lnc=2,
    ),
    Fault(
        "vit_block", "rows of the second program over those of the first", "group.py",
        "Store(self.out, self.first + self.begin)", "Store(self.out, self.first)",
        SHARED, "bf16", lnc=2,
    ),
    Fault(
        "vit_block", "tables of the first program's images", "encoder.py",
        "            self.first + chunk * self.size,\n", "            chunk * self.size,\n",
        dict(ROTATED, batch=3, tables="own"), "bf16", lnc=2,
    ),
    Fault(
        "vit_encoder", "rows read before the other program has written them", "block.py",
        "            group.meet()\n            return open_norm(group, self.vectors, form)",
        "            return open_norm(group, self.vectors, form)", SHARED, "bf16", lnc=2,
    ),
    Fault(
        "vit_encoder", "rows written before the other program has read them", "block.py",
        "        # All rows are read.\n        group.meet()\n", "", SHARED, "bf16", lnc=2,
    ),
    Fault(
        "vit_encoder", "the input again in the next layer", "group.py",
        "        self.x = self.out\n", "        self.x = self.x\n", SHARED, "bf16", lnc=2,
    ),
    # queries and keys as rotated columns
    Fault(
        "vit_block", "values of a pair not swapped", "rotate.py",
        "nisa.tensor_copy(dst=swap_low, src=high)\n    nisa.tensor_copy(dst=swap_high, src=low)",
        "nisa.tensor_copy(dst=swap_low, src=low)\n    nisa.tensor_copy(dst=swap_high, src=high)",
        ROTATED, "bf16",
    ),
    Fault(
        "vit_block", "cosines for sines", "rotate.py",
        "over_images(self.sin[0:rows, start:stop], images)",
        "over_images(self.cos[0:rows, start:stop], images)", ROTATED, "bf16",
    ),
    Fault(
        "vit_block", "first tokens of the tables for all parts", "rotate.py",
        "over_images(self.cos[0:rows, start:stop], images)",
        "over_images(self.cos[0:rows, 0 : stop - start], images)",
        dict(ROTATED, tokens=600, batch=1), "bf16",
    ),
    Fault(
        "vit_block", "last heads not rotated", "qkv.py",
        "            self.plan.append((ceil_div(heads, self.packed) - 1, None))\n",
        "            pass\n", ROTATED, "bf16",
    ),
    Fault(
        "vit_block", "only the first image rotated", "rotate.py",
        "in range(0, tokens, shared * length)", "in range(0, length, shared * length)",
        dict(ROTATED, tokens=300, batch=3), "bf16",
    ),
    # queries and keys as rows: vit_block with norms, or a rotation of each image
    Fault(
        "vit_block", "sines not negated", "heads.py",
        "operand0=-1.0)", "operand0=1.0)", ROTATED, "bf16",
    ),
    Fault(
        "vit_block", "rotation of the other style", "heads.py",
        "return rows[:, :, 0:half], rows[:, :, half : 2 * half]",
        "return rows[:, :, 0 : 2 * half : 2], rows[:, :, 1 : 2 * half : 2]", ROTATED, "bf16",
    ),
    Fault(
        "vit_block", "prefix tokens rotated", "heads.py",
        "skipped = length - positions", "skipped = 0", dict(ROTATED, prefix=1), "bf16",
    ),
    Fault(
        "vit_block", "positions one token late", "heads.py",
        "src=source[start - skipped : high - skipped, :],",
        "src=source[start - skipped - 1 : high - skipped - 1, :],", ROTATED, "bf16",
    ),
    Fault(
        "vit_block", "sines of the prefix not zero", "heads.py",
        "load_table(sin, image, length, tile, 0.0)",
        "load_table(sin, image, length, tile, 1.0)", ROTATED, "bf16",
    ),
    Fault(
        "vit_block", "tables of the first image for all", "heads.py",
        "len(shape.cos.shape) == 3:", "False:", dict(ROTATED, tables="own", batch=3), "bf16",
    ),
    Fault(
        "vit_block", "tables of the first tile for all", "heads.py",
        "    low = tile * PARTITIONS\n    high = min(low + PARTITIONS, length)\n    rows",
        "    low = 0\n    high = min(low + PARTITIONS, length)\n    rows",
        dict(ROTATED, tokens=150, batch=1), "bf16",
    ),
    Fault(
        "vit_block", "tables left over from the queries' last tile", "heads.py",
        "        if self.tables == None or image == 0 or", "        if self.tables == None or",
        dict(ROTATED_ROWS, tokens=150, batch=1), "bf16",
    ),
    Fault(
        "vit_block", "keys rounded before the rotation", "heads.py",
        "dtype = self.dtype if self.plain else nl.float32", "dtype = nl.bfloat16", ROTATED_ROWS,
    ),
    Fault(
        "vit_block", "eps of the head norms forgotten", "heads.py",
        "1.0 / dim, shape.eps)", "1.0 / dim, 0.0)", NORMED,
    ),
    Fault(
        "vit_block", "mean of the head norms kept", "heads.py",
        'if shape.norm == "layer":', "if False:", NORMED, "bf16",
    ),
    Fault(
        "vit_block", "bias of the head norms dropped", "heads.py",
        "self.norm_bias = broadcast_row(norm_bias, 0, dim)", "self.norm_bias = None", NORMED,
        "bf16",
    ),
    Fault(
        "vit_block", "norm of the queries for the keys", "heads.py",
        "norm_weight, norm_bias = shape.norms[which]", "norm_weight, norm_bias = shape.norms[0]",
        NORMED, "bf16",
    ),
    Fault(
        "vit_block", "projection of the queries for the keys", "heads.py",
        'load_weight(weight, "in_out", self.width, which * embed',
        'load_weight(weight, "in_out", self.width, 0 * embed', ROTATED_ROWS, "bf16",
    ),
    Fault(
        "vit_block", "bias dropped in front of the rotation", "heads.py",
        "            if self.bias != None:\n", "            if False:\n", ROTATED_ROWS, "bf16",
    ),
    Fault(
        "vit_block", "deviations of the queries for the keys", "heads.py",
        "self.deviations = shape.deviations[which]", "self.deviations = shape.deviations[0]",
        dict(NORMED, qk_norm="rms", full=True, norm="rms"), "bf16",
    ),
    Fault(
        "vit_block", "mean over one head instead of all", "heads.py",
        "total, 1.0 / self.embed,", "total, 3.0 / self.embed,",
        dict(NORMED, qk_norm="rms", full=True), "bf16",
    ),
    Fault(
        "vit_block", "deviations of the first image for all", "heads.py",
        "column = image * self.tiles + tile", "column = tile",
        dict(NORMED, qk_norm="rms", full=True, batch=3), "bf16",
    ),
    Fault(
        "vit_block", "bias missing in the squares", "heads.py",
        "        self.row = broadcast_row(self.bias, self.first + low, size)\n",
        "        self.row = None\n", dict(NORMED, qk_norm="rms", full=True), "bf16",
    ),
    Fault(
        "vit_block", "bias of the first 512 values in the squares of all", "heads.py",
        "part_of(self.row, tokens, start, stop)", "part_of(self.row, tokens, 0, stop - start)",
        dict(NORMED, heads=9, head_dim=64, qk_norm="rms", full=True),
    ),
    Fault(
        "vit_block", "key lengths of the first image for all", "block.py",
        "            image,\n            first,\n", "            0,\n            first,\n",
        dict(BLOCK, tokens=600, lens=(600, 5)), "bf16",
    ),
    Fault(
        "vit_block", "mask of the first image for all", "score_bias.py",
        "here = image if batch > 1 else 0", "here = 0",
        dict(BLOCK, tokens=65, mask="bias", axes="B1Q"), "bf16",
    ),
    Fault(
        "vit_block", "mask of the first image of a tile for all", "score_bias.py",
        "each = here + window if mask.shape[0] > 1 else 0", "each = here",
        WINDOWS, "bf16",
    ),
    Fault(
        "vit_block", "mask of the first tile of images for all", "score_bias.py",
        "            here = image\n", "            here = 0\n", WINDOWS, "bf16",
    ),
    Fault(
        "vit_block", "key lengths of the first image of a tile for all", "score_bias.py",
        "load_row(self.kv_lens, image + window, 1)", "load_row(self.kv_lens, image, 1)",
        dict(WINDOWS, mask=None, lens=(49, 3, 20)), "bf16",
    ),
    Fault(
        "vit_block", "values of the first image of a tile for all", "attend.py",
        "moving=self.values[base : base + self.k_len, 0, head, :]",
        "moving=self.values[0 : self.k_len, 0, head, :]", WINDOWS, "bf16",
    ),
    Fault(
        "vit_block", "keys of the first image of a tile for all", "attend.py",
        "stationary=self.keys.stationary(head, window, low, count)",
        "stationary=self.keys.stationary(head, 0, low, count).broadcast(1, window + 1)"
        " if window > 0 else self.keys.stationary(head, window, low, count)",
        WINDOWS, "bf16",
    ),
    Fault(
        "vit_block", "first image of a tile before the others", "attend.py",
        "            step = late - (windows - 1 - window)\n", "            step = late - window\n",
        WINDOWS, "bf16",
    ),
    Fault(
        "vit_block", "maxima of the first image of a tile for all", "attend.py",
        "        low = window * self.queries.span\n", "        low = 0\n",
        dict(WINDOWS, logits=1e4), "bf16",
    ),
    Fault(
        "vit_block", "mask of the first heads for all", "block.py",
        "            image,\n            first,\n", "            image,\n            0,\n",
        dict(BLOCK, heads=70, batch=1, mask="bool", axes="1HQ"), "bf16",
    ),
    Fault(
        "vit_block", "norm inside the MLP dropped", "parameters.py",
        "        if self.inner_norm != None:\n", "        if self.inner_norm == None:\n",
        dict(BLOCK, inner_norm="layer"), "bf16",
    ),
    Fault(
        "vit_block", "gate and its partner exchanged", "parameters.py",
        '            weights["gate_weight"],\n            weights["gate_bias"],\n'
        '            weights["fc1_weight"],\n',
        '            weights["fc1_weight"],\n            weights["gate_bias"],\n'
        '            weights["gate_weight"],\n',
        dict(BLOCK, gate=True), "bf16",
    ),
    Fault(
        "vit_block", "first heads transposed for all", "heads.py",
        "low = head + slot * packed", "low = slot * packed", dict(NORMED, heads=5), "bf16",
    ),
]  # fmt: skip
