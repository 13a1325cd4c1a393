"""Classify images with a Vision Transformer of transformers, its blocks run by neuron-vit.

    python examples/classify_vit.py          # the PyTorch path of the package
    python examples/classify_vit.py --nki    # the NKI kernels, emulated on this CPU

Prints what `nv.apply` replaced, how many NKI kernels were launched, and whether the classes are
those of the untouched model. The model is made from its config, so nothing is downloaded; its
weights are random, and so the classes mean nothing. For real ones put
`ViTForImageClassification.from_pretrained("google/vit-base-patch16-224")` in the place of `build`.
"""

import argparse
import copy
import os

import torch
from transformers import ViTConfig, ViTForImageClassification


def build() -> ViTForImageClassification:
    """A small ViT for 10 classes, with random weights."""
    torch.manual_seed(0)
    config = ViTConfig(
        image_size=64,
        patch_size=16,
        hidden_size=192,
        num_attention_heads=3,
        intermediate_size=768,
        num_hidden_layers=3,
        initializer_range=0.2,
        num_labels=10,
    )
    return ViTForImageClassification(config).eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nki", action="store_true", help="run the NKI kernels, emulated")
    parser.add_argument("--images", type=int, default=4, help="how many (default: 4)")
    options = parser.parse_args()
    if options.nki:
        os.environ["NKI_SIMULATOR"] = "1"

    # With the package from the Hub:
    #   nv = kernels.get_kernel("org/neuron-vit", version=1, trust_remote_code=True)
    import neuron_vit as nv

    model = build()
    untouched = copy.deepcopy(model)
    print(nv.apply(model))

    images = torch.randn(options.images, 3, 64, 64)
    nv.reset_launches()
    with torch.no_grad():
        logits = model(images).logits
        expected = untouched(images).logits

    print("weights: random, so the classes mean nothing")
    print("ran as:", nv.last_path(), nv.launches())
    print("classes:", logits.argmax(-1).tolist())
    print("same as the untouched model:", torch.equal(logits.argmax(-1), expected.argmax(-1)))
    print(f"largest difference of a logit: {(logits - expected).abs().max():.1e}")


if __name__ == "__main__":
    main()
