"""timm, also where torchvision is absent.

timm's transforms and a few of its convolutional models import torchvision, whose wheels for Linux
need a build of torch with CUDA; so `make test` installs timm without what it depends on. Its
transformer blocks are made of torch alone. While timm is imported here, a missing torchvision is
stood in for by modules in which every name is an empty class.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types

import pytest
import torch


class _Empty(type):
    """A class every attribute of which is its own name, so that it also passes for an Enum."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return name


class _StandIn(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _Empty(name, (torch.nn.Module,), {})


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torchvision":
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return _StandIn(spec.name)

    def exec_module(self, module):
        pass


def _load():
    if importlib.util.find_spec("torchvision") is not None:
        return pytest.importorskip("timm")
    finder = _Finder()
    sys.meta_path.append(finder)
    try:
        return pytest.importorskip("timm")
    finally:
        sys.meta_path.remove(finder)
        # Nobody else shall take the stand-in for torchvision.
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]


timm = _load()
