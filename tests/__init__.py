"""Tests; `tests.hub_server` is also used by the demo, from a checkout."""
