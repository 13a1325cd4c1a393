"""Loads, and what other modules know as loads."""

from .load import BLOCK, load_block

__all__ = ["BLOCK", "load_block"]
