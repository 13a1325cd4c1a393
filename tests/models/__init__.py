"""Blocks of the families people use, taken from transformers and timm."""
