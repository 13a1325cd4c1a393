"""Builds the Hub variants of the kernel package, checks them and publishes them.

`neuron-vit-hub build`, `check`, `publish` and `public-api` are the commands (without an install
`python -m hub`); `hub.build`, `hub.check`, `hub.publish` and `hub.public_api` are the modules
behind them. Each works on a checkout or on a built folder that it is given, and none needs an
accelerator.
"""
