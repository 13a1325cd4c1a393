"""Reading imports and `__all__` from the text of a file."""

import pytest

from hub.source import Import, literal_all, read_imports


@pytest.mark.parametrize(
    "source, expected",
    [
        ("import a.b, c", [Import("a.b", 0, False, 1), Import("c", 0, False, 1)]),
        ("from a import b", [Import("a", 0, False, 1)]),
        ("from .a.b import c", [Import("a.b", 1, False, 1)]),
        ("from .. import a, b", [Import("a", 2, False, 1), Import("b", 2, False, 1)]),
        ("def f():\n    import a", [Import("a", 0, True, 2)]),
        ("class C:\n    import a", [Import("a", 0, False, 2)]),
        ("try:\n    import a\nexcept ImportError:\n    pass", [Import("a", 0, False, 2)]),
        ("importlib.import_module('a.b')", [Import("a.b", 0, False, 1)]),
        ("importlib.import_module('..a', __package__)", [Import("a", 2, False, 1)]),
        ("f = lambda: __import__('a')", [Import("a", 0, True, 1)]),
        ("importlib.import_module(name)", []),
    ],
)
def test_imports(source, expected):
    assert read_imports(source) == expected


@pytest.mark.parametrize(
    "source, expected",
    [
        ("__all__ = ['a', 'b']", ["a", "b"]),
        ("__all__ = []", []),
        ("", None),
        ("__all__ = ('a',)", None),
        ("__all__ = ['a'] + ['b']", None),
        ("__all__ = ['a', name]", None),
        ("__all__ = ['a', 1]", None),
        ("__all__: list = ['a']", None),
        ("__all__ = ['a']\n__all__ += ['b']", None),
        ("__all__ = ['a']\n__all__ = ['b']", None),
    ],
)
def test_literal_all(source, expected):
    assert literal_all(source) == expected
