"""Shapes of tensor views against NumPy, for random indices."""

import random

import numpy
import pytest

from nki_emulator.checker.evaluate import Evaluator
from nki_emulator.checker.source import Sources
from nki_emulator.checker.values import Tensor


def random_index(generator, size):
    """An index of one axis: an integer, or a slice that is not empty."""
    if generator.random() < 0.3:
        return str(generator.randrange(-size, size))
    first = generator.randrange(size)
    last = generator.randrange(first + 1, size + 3)
    step = generator.choice((None, 1, 2, 3))
    parts = [generator.choice(("", first)) if first == 0 else first, generator.choice(("", last))]
    return ":".join(str(part) for part in [*parts, *([] if step is None else [step])])


def random_key(generator, shape):
    keys = [random_index(generator, size) for size in shape]
    count = generator.randrange(1, len(keys) + 1)
    forms = (keys[:count], [*keys[:count], "..."], ["...", *keys[-count:]])
    return ", ".join(generator.choice(forms))


def viewed(folder, key, shape, buffer):
    """What the checker knows about a tensor of a shape, indexed with the source text ``key``."""
    file = folder / "view.py"
    file.write_text(f"t[{key}]\n")
    sources = Sources([file])
    evaluator = Evaluator(sources)
    (module,) = sources.checked
    scope = evaluator.scopes.of_module(module)
    scope.bindings["t"] = []
    scope.values["t"] = Tensor(shape, "float32", buffer, start=0)
    return evaluator.expression(module.tree.body[0].value, scope)


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("buffer", ["shared_hbm", "sbuf"])
def test_shape_of_an_index(seed, buffer, tmp_path):
    generator = random.Random(seed)
    shape = tuple(generator.randrange(1, 9) for _ in range(generator.randrange(2, 5)))
    key = random_key(generator, shape)
    array = numpy.arange(numpy.prod(shape)).reshape(shape)
    view = viewed(tmp_path, key, shape, buffer)
    expected = numpy.asarray(eval(f"array[{key}]"))  # noqa: S307
    assert view.buffer == buffer and view.dtype == "float32"
    assert view.shape is not None
    if buffer == "shared_hbm":
        assert view.shape == (expected.shape or (1,))
    else:
        assert view.size == expected.size
        assert len(view.shape) >= 2
        first_row = expected.flat[0] // (array.size // shape[0])
        assert view.start == first_row
        rows = numpy.unique(expected // (array.size // shape[0])).size
        assert view.shape[0] == rows
