"""Tests of nki_emulator: each rule has a kernel that breaks it and one that just obeys it."""
