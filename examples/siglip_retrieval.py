"""Find the image that fits a text with SigLIP, both of its towers run by neuron-vit.

    python examples/siglip_retrieval.py          # the PyTorch path of the package
    python examples/siglip_retrieval.py --nki    # the NKI kernels, emulated on this CPU

Prints what `nv.apply` replaced, and for every text the images from best to worst, as the model
ranks them with the kernels and untouched. The model is made from its config, so nothing is
downloaded; its weights are random, the texts are random tokens, and so the ranking means nothing.
For a real one load `SiglipModel` and `AutoProcessor` from "google/siglip-base-patch16-224".
"""

import argparse
import copy
import os

import torch
from transformers import SiglipConfig, SiglipModel


def build() -> SiglipModel:
    """A small SigLIP, with random weights."""
    torch.manual_seed(0)
    tower = dict(hidden_size=128, num_attention_heads=2, intermediate_size=512, num_hidden_layers=2)
    ids = dict(vocab_size=1000, pad_token_id=0, bos_token_id=1, eos_token_id=2)
    text = dict(tower, **ids, max_position_embeddings=16, projection_size=128)
    vision = dict(tower, image_size=64, patch_size=16)
    return SiglipModel(SiglipConfig(text_config=text, vision_config=vision)).eval()


def ranking(model: SiglipModel, pixels: torch.Tensor, tokens: torch.Tensor) -> list:
    """For every text the numbers of the images, best first."""
    with torch.no_grad():
        scores = model(pixel_values=pixels, input_ids=tokens).logits_per_text
    return scores.argsort(-1, descending=True).tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nki", action="store_true", help="run the NKI kernels, emulated")
    parser.add_argument("--images", type=int, default=5, help="how many (default: 5)")
    options = parser.parse_args()
    if options.nki:
        os.environ["NKI_SIMULATOR"] = "1"

    # With the package from the Hub:
    #   nv = kernels.get_kernel("org/neuron-vit", version=1, trust_remote_code=True)
    import neuron_vit as nv

    model = build()
    untouched = copy.deepcopy(model)
    print(nv.apply(model))

    pixels = torch.randn(options.images, 3, 64, 64)
    tokens = torch.randint(0, 1000, (2, 16))
    nv.reset_launches()
    ours, theirs = ranking(model, pixels, tokens), ranking(untouched, pixels, tokens)
    print("weights: random, so the ranking means nothing")
    print("ran as:", nv.last_path(), nv.launches())
    for text, images in enumerate(ours):
        print(f"text {text}: images {images}")
    print("same ranking as the untouched model:", ours == theirs)


if __name__ == "__main__":
    main()
