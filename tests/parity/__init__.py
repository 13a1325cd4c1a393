"""Parity: every kernel and every reference against PyTorch in float64, under one rule."""
