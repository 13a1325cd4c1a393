"""Tests of the Hub tools, with the real clients and the loopback Hub."""
