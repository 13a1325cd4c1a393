"""For `kernels benchmark .`: the package's functions on the shapes of ViT-B/16, 4 images of 224.

Each workload waits for a neuron device by itself, which the runner does not do. On a CPU the
package runs PyTorch operations; the first workload says so, because the ratios that the runner
prints then compare PyTorch with PyTorch.

This script is published beside the kernels and needs nothing but them.
"""

import sys

import torch
import torch.nn.functional as F
from kernels.benchmark import Benchmark

BATCH, TOKENS, WIDTH, HEADS, HEAD_DIM, HIDDEN = 4, 197, 768, 12, 64, 3072
EPS = 1e-12
DTYPE = torch.bfloat16

# The runner compares with an absolute tolerance of 1e-2. At this scale results stay around 1 or
# below, where neighbouring bfloat16 values are closer together than that.
SCALE = 0.1


class VitBenchmark(Benchmark):
    """bfloat16 throughout; every tensor from the seed."""

    seed = 0
    said_what_runs = False

    def random(self, *shape, scale=SCALE):
        return (scale * torch.randn(shape)).to(self.device, DTYPE)

    def matrix(self, out_features, in_features):
        return self.random(out_features, in_features, scale=in_features**-0.5)

    def finish(self, result):
        """Wait for the device, keep the result for the runner, and say if no kernel ran."""
        if self.device == "neuron":
            torch.neuron.synchronize()
        if self.kernel.last_path() != "nki" and not VitBenchmark.said_what_runs:
            print(
                f"  On {self.device} PyTorch operations run, no NKI kernel: the ratios of times"
                "\n  below say nothing about Trainium.",
                file=sys.stderr,
            )
            VitBenchmark.said_what_runs = True
        self.out = result

    def setup_layer_norm(self):
        self.x = self.random(BATCH, TOKENS, WIDTH, scale=1.0)
        self.weight, self.bias = self.random(WIDTH), self.random(WIDTH)

    def benchmark_layer_norm(self):
        self.finish(self.kernel.layer_norm(self.x, (WIDTH,), self.weight, self.bias, EPS))

    def verify_layer_norm(self):
        return F.layer_norm(self.x, (WIDTH,), self.weight, self.bias, EPS)

    def setup_linear(self):
        self.x = self.random(BATCH, TOKENS, WIDTH)
        self.weight, self.bias = self.matrix(3 * WIDTH, WIDTH), self.random(3 * WIDTH)

    def benchmark_linear(self):
        self.finish(self.kernel.linear(self.x, self.weight, self.bias))

    def verify_linear(self):
        return F.linear(self.x, self.weight, self.bias)

    def setup_mlp(self):
        self.x = self.random(BATCH, TOKENS, WIDTH)
        self.fc1, self.fc1_bias = self.matrix(HIDDEN, WIDTH), self.random(HIDDEN)
        self.fc2, self.fc2_bias = self.matrix(WIDTH, HIDDEN), self.random(WIDTH)

    def benchmark_mlp(self):
        layers = (self.fc1, self.fc1_bias, self.fc2, self.fc2_bias)
        self.finish(self.kernel.mlp(self.x, *layers, activation="gelu"))

    def verify_mlp(self):
        hidden = F.gelu(F.linear(self.x, self.fc1, self.fc1_bias))
        return F.linear(hidden, self.fc2, self.fc2_bias)

    def setup_attention(self):
        # As the model libraries hand them over: views on one [batch, tokens, 3, heads, head_dim].
        qkv = self.random(BATCH, TOKENS, 3, HEADS, HEAD_DIM, scale=1.0)
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        self.qkv = (query, key, SCALE * value)

    def benchmark_attention(self):
        self.finish(self.kernel.scaled_dot_product_attention(*self.qkv))

    def verify_attention(self):
        return F.scaled_dot_product_attention(*self.qkv)

    def setup_vit_block(self):
        self.x = self.random(BATCH, TOKENS, WIDTH)
        self.norm_weight, self.norm_bias = self.random(WIDTH), self.random(WIDTH)
        self.qkv_weight, self.qkv_bias = self.matrix(3 * WIDTH, WIDTH), self.random(3 * WIDTH)
        self.proj, self.proj_bias = self.matrix(WIDTH, WIDTH), self.random(WIDTH)
        self.fc1, self.fc1_bias = self.matrix(HIDDEN, WIDTH), self.random(HIDDEN)
        self.fc2, self.fc2_bias = self.matrix(WIDTH, HIDDEN), self.random(WIDTH)
        self.params = self.kernel.BlockParams(
            norm1_weight=self.norm_weight,
            norm1_bias=self.norm_bias,
            qkv_weight=self.qkv_weight.t().contiguous(),
            qkv_bias=self.qkv_bias,
            proj_weight=self.proj.t().contiguous(),
            proj_bias=self.proj_bias,
            norm2_weight=self.norm_weight,
            norm2_bias=self.norm_bias,
            fc1_weight=self.fc1.t().contiguous(),
            fc1_bias=self.fc1_bias,
            fc2_weight=self.fc2.t().contiguous(),
            fc2_bias=self.fc2_bias,
            num_heads=HEADS,
            eps=EPS,
            attention_scale=HEAD_DIM**-0.5,
            norm="layer",
            activation="gelu",
        )

    def benchmark_vit_block(self):
        self.finish(self.kernel.vit_block(self.x, self.params))

    def verify_vit_block(self):
        x = self.x
        normalized = F.layer_norm(x, (WIDTH,), self.norm_weight, self.norm_bias, EPS)
        qkv = F.linear(normalized, self.qkv_weight, self.qkv_bias)
        heads = qkv.view(BATCH, TOKENS, 3, HEADS, HEAD_DIM).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*heads.unbind(0))
        mixed = mixed.transpose(1, 2).reshape(BATCH, TOKENS, WIDTH)
        x = x + F.linear(mixed, self.proj, self.proj_bias)
        normalized = F.layer_norm(x, (WIDTH,), self.norm_weight, self.norm_bias, EPS)
        hidden = F.gelu(F.linear(normalized, self.fc1, self.fc1_bias))
        return x + F.linear(hidden, self.fc2, self.fc2_bias)
