"""Features of images from DINOv2, its blocks run by neuron-vit.

    python examples/dinov2_features.py          # the PyTorch path of the package
    python examples/dinov2_features.py --nki    # the NKI kernels, emulated on this CPU

The images are handwritten digits that scikit-learn brings along. Prints what `nv.apply` replaced,
the shape of the features, and the smallest cosine between one of them and that of the untouched
model. The model is made from its config, so nothing is downloaded; its weights are random, and so
the features mean nothing. For real ones put `Dinov2Model.from_pretrained("facebook/dinov2-base")`
in the place of `build`.
"""

import argparse
import copy
import os

import torch
from sklearn.datasets import load_digits
from transformers import Dinov2Config, Dinov2Model


def build() -> Dinov2Model:
    """A small DINOv2 for images of 8 x 8 pixels, with random weights."""
    torch.manual_seed(0)
    config = Dinov2Config(
        image_size=8,
        patch_size=2,
        num_channels=1,
        hidden_size=192,
        num_attention_heads=3,
        num_hidden_layers=3,
    )
    return Dinov2Model(config).eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nki", action="store_true", help="run the NKI kernels, emulated")
    parser.add_argument("--images", type=int, default=8, help="how many digits (default: 8)")
    options = parser.parse_args()
    if options.nki:
        os.environ["NKI_SIMULATOR"] = "1"

    # With the package from the Hub:
    #   nv = kernels.get_kernel("org/neuron-vit", version=1, trust_remote_code=True)
    import neuron_vit as nv

    digits = load_digits().images[: options.images, None]
    images = torch.tensor(digits, dtype=torch.float32) / 8 - 1  # from 0..16 to -1..1

    model = build()
    untouched = copy.deepcopy(model)
    print(nv.apply(model))

    nv.reset_launches()
    with torch.no_grad():
        features = model(images).pooler_output
        expected = untouched(images).pooler_output

    print("weights: random, so the features mean nothing")
    print("ran as:", nv.last_path(), nv.launches())
    print("features:", tuple(features.shape))
    cosine = torch.cosine_similarity(features, expected).min().item()
    print(f"smallest cosine with the untouched model: {cosine:.6f}")


if __name__ == "__main__":
    main()
