"""NKIObject: the base of the classes that a kernel may define.

The NKI compiler writes ``__init__`` for such a class: fields are its annotated attributes and its
plain class attributes, in the order written, and a field without a default is None. Instances call
``__post_init__`` when they are complete. ``@dataclass`` on the class is allowed and changes nothing
for the compiler; here it sees plain class attributes as fields too.
"""


def _is_field(name, value):
    return not name.startswith("__") and not callable(value) and not hasattr(value, "__get__")


class NKIObject:
    """Base class of kernel data classes and configuration objects."""

    __slots__ = ()

    def __init_subclass__(cls, **keywords):
        super().__init_subclass__(**keywords)
        if "__slots__" in cls.__dict__:
            return
        annotations = dict(cls.__dict__.get("__annotations__", {}))
        for name, value in list(cls.__dict__.items()):
            if name not in annotations and _is_field(name, value):
                annotations[name] = object
        cls.__annotations__ = annotations

    def __init__(self, *values, **named):
        fields = list(type(self).__dict__.get("__annotations__", {}))
        if len(values) > len(fields):
            raise TypeError(
                f"{type(self).__name__} has {len(fields)} fields; {len(values)} values were given"
            )
        given = dict(zip(fields, values))
        for name, value in named.items():
            if name not in fields or name in given:
                problem = "given twice" if name in given else "not a field"
                raise TypeError(f"{type(self).__name__}: {name!r} is {problem}")
            given[name] = value
        for name in fields:
            setattr(self, name, given.get(name, getattr(type(self), name, None)))
        self.__post_init__()

    def __post_init__(self):
        """Called when the fields are set; a class may define its own."""
