"""Builds the Hub variants of the kernel package, checks them and publishes them.

`python -m hub build`, `check` and `publish` are the commands; `hub.build`, `hub.check` and
`hub.publish` are the functions behind them. Each works on a checkout or on a built folder that it
is given, and none needs an accelerator.
"""
