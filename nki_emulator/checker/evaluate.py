"""Evaluate expressions as far as the source alone decides them.

A name is worth the join of everything its scope assigns to it, in any order; parameters, loop
counters and results of the user's own functions are unknown. Nothing is executed.
"""

import ast
import builtins
import operator

from . import tensor_views
from .api import BUFFERS, DTYPES, ISA, LANGUAGE, TILE_SIZES, canonical, load_api
from .binding import bind
from .scopes import Scopes
from .values import (
    NONE,
    UNKNOWN,
    ApiName,
    BuiltinName,
    ClassValue,
    Constant,
    Container,
    EnumMember,
    FunctionValue,
    Instance,
    Iteration,
    LibraryName,
    ModuleValue,
    Register,
    Sequence,
    Tensor,
    is_integer,
    join,
)

ARITHMETIC = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}

# nki.language functions that allocate a tensor of a given shape.
CREATORS = ("ndarray", "zeros", "ones", "full", "rand")

# nki.language functions whose result is a new PSUM tile, as the reference's examples call it.
PSUM_RESULTS = frozenset(("matmul", "transpose"))

# nki.language functions whose result is a new SBUF tile.
SBUF_RESULTS = frozenset(
    "add subtract multiply maximum minimum abs_max abs_min abs square power equal not_equal less "
    "less_equal greater greater_equal bitwise_and bitwise_or bitwise_xor invert left_shift "
    "right_shift logical_and logical_or logical_xor logical_not exp log sqrt rsqrt tanh sigmoid "
    "relu gelu gelu_apprx_sigmoid gelu_apprx_tanh gelu_dx gelu_apprx_sigmoid_dx silu silu_dx "
    "softplus mish erf erf_dx reciprocal copy sin cos tan arctan ceil floor trunc negative sign "
    "sum max min mean prod var all softmax rms_norm where dropout load load_transpose2d "
    "gather_flattened shared_identity_matrix".split()
)


class Evaluator:
    """Values of expressions; one for all modules of a check."""

    def __init__(self, sources):
        self.sources = sources
        self.scopes = Scopes()
        self.api = load_api()
        # First parameters of loop bodies, by their ast.arg node: what the loop passes.
        self.loop_parameters = {}
        self.running = set()

    def forget(self):
        """Drop all remembered values, after ``loop_parameters`` has changed."""
        for scope in self.scopes.all():
            scope.values.clear()

    # --- names

    def name(self, name, scope):
        owner = scope.owner(name)
        if owner is None:
            return self.outside(name, scope)
        if name not in owner.values:
            key = (id(owner), name)
            if key in self.running:
                return UNKNOWN
            self.running.add(key)
            try:
                # A name that depends on itself counts as unknown there, which only loses precision.
                owner.values[name] = self.join_bindings(owner.bindings[name], owner)
            finally:
                self.running.discard(key)
        return owner.values[name]

    def join_bindings(self, bindings, scope):
        values = [self.binding(binding, scope) for binding in bindings]
        if all(binding.kind == "import" for binding in bindings):
            # `try: import nki ... except ImportError: ...` means nki.
            known = [value for value in values if isinstance(value, ApiName)]
            values = known or values
        return join(values)

    def outside(self, name, scope):
        """A name that no scope binds: from a star import, a builtin, or unknown."""
        top = scope
        while top.parent is not None:
            top = top.parent
        for statement in top.star_imports:
            value = self.imported(top.module, statement.level, statement.module or "", name)
            if isinstance(value, ApiName) and not self.api.lacks(value.path):
                return value
            if not isinstance(value, (ApiName, LibraryName)) and value != UNKNOWN:
                return value
        if not top.star_imports and hasattr(builtins, name):
            return BuiltinName(name)
        return UNKNOWN

    def binding(self, binding, scope):
        if binding.kind == "import":
            return self.imported(scope.module, binding.level, binding.module, binding.attribute)
        if binding.kind == "function":
            return FunctionValue(binding.node, scope)
        if binding.kind == "class":
            return ClassValue(binding.node, scope)
        if binding.kind == "parameter":
            return self.loop_parameters.get(binding.node, UNKNOWN)
        if binding.kind == "item":
            over = self.expression(binding.expression, scope)
            if isinstance(over, Iteration) and over.dynamic:
                return Register(loop=True)
            return UNKNOWN
        if binding.kind == "value":
            value = self.expression(binding.expression, scope)
            for index in binding.path:
                value = element(value, index)
            return value
        return UNKNOWN

    def imported(self, importer, level, module, attribute):
        if level == 0 and module.split(".")[0] == "nki":
            return ApiName(canonical(f"{module}.{attribute}" if attribute else module))
        found = self.sources.imported(importer, level, module)
        if found is None:
            if level == 0:
                return LibraryName(f"{module}.{attribute}" if attribute else module)
            # A module of a folder without __init__.py.
            inner = self.sources.imported(importer, level, f"{module}.{attribute}".lstrip("."))
            return UNKNOWN if inner is None else ModuleValue(inner)
        if attribute is None:
            return ModuleValue(found)
        return self.module_attribute(found, attribute)

    def module_attribute(self, module, attribute):
        scope = self.scopes.of_module(module)
        if attribute in scope.bindings:
            return self.name(attribute, scope)
        if module.file.endswith("__init__.py"):
            inner = self.sources.at(module, module.folder, attribute)
            if inner is not None:
                return ModuleValue(inner)
        key = (id(module), attribute)
        if key in self.running:
            # Modules that import * from each other.
            return UNKNOWN
        self.running.add(key)
        try:
            for statement in scope.star_imports:
                value = self.imported(module, statement.level, statement.module or "", attribute)
                if value != UNKNOWN:
                    return value
        finally:
            self.running.discard(key)
        return UNKNOWN

    # --- expressions

    def expression(self, node, scope):
        """The value of ``node`` where ``scope`` is current."""
        handler = getattr(self, f"evaluate_{type(node).__name__}", None)
        return UNKNOWN if handler is None else handler(node, scope)

    def evaluate_Constant(self, node, scope):
        return Constant(node.value)

    def evaluate_Name(self, node, scope):
        return self.name(node.id, scope)

    def evaluate_NamedExpr(self, node, scope):
        return self.expression(node.value, scope)

    def evaluate_Tuple(self, node, scope):
        if any(isinstance(item, ast.Starred) for item in node.elts):
            return UNKNOWN
        return Sequence("tuple", tuple(self.expression(item, scope) for item in node.elts))

    def evaluate_List(self, node, scope):
        if any(isinstance(item, ast.Starred) for item in node.elts):
            return Container("list")
        return Sequence("list", tuple(self.expression(item, scope) for item in node.elts))

    def evaluate_ListComp(self, node, scope):
        return Container("list")

    def evaluate_Dict(self, node, scope):
        return Container("dict")

    def evaluate_DictComp(self, node, scope):
        return Container("dict")

    def evaluate_Set(self, node, scope):
        return Container("set")

    def evaluate_IfExp(self, node, scope):
        return join((self.expression(node.body, scope), self.expression(node.orelse, scope)))

    def evaluate_UnaryOp(self, node, scope):
        value = self.expression(node.operand, scope)
        if isinstance(node.op, ast.USub) and is_number(value):
            return Constant(-value.value)
        return UNKNOWN

    def evaluate_BinOp(self, node, scope):
        function = ARITHMETIC.get(type(node.op))
        left = self.expression(node.left, scope)
        right = self.expression(node.right, scope)
        if function is None or not is_number(left) or not is_number(right):
            return UNKNOWN
        try:
            return Constant(function(left.value, right.value))
        except ZeroDivisionError:
            return UNKNOWN

    def evaluate_Attribute(self, node, scope):
        return self.attribute(self.expression(node.value, scope), node.attr)

    def attribute(self, value, name):
        if isinstance(value, ApiName):
            return self.api_attribute(value, name)
        if isinstance(value, LibraryName):
            return LibraryName(f"{value.path}.{name}")
        if isinstance(value, ModuleValue):
            return self.module_attribute(value.module, name)
        if isinstance(value, ClassValue):
            return self.class_attribute(value, name)
        if isinstance(value, Tensor):
            return tensor_views.attribute(value, name)
        return UNKNOWN

    def api_attribute(self, value, name):
        path = canonical(f"{value.path}.{name}")
        if value.path in self.api.enums and path in self.api.names:
            return EnumMember(value.path, name)
        if value.path == f"{LANGUAGE}.tile_size" and name in TILE_SIZES:
            return Constant(TILE_SIZES[name])
        return ApiName(path)

    def class_attribute(self, value, name):
        if self.is_enum(value):
            return EnumMember(value, name) if name in enum_members(value.node) else UNKNOWN
        for statement in value.node.body:
            if isinstance(statement, ast.FunctionDef) and statement.name == name:
                return FunctionValue(statement, value.scope, value)
        return UNKNOWN

    def bases(self, value):
        return [self.expression(base, value.scope) for base in value.node.bases]

    def is_enum(self, value):
        return any(
            isinstance(base, LibraryName) and base.path in ("enum.Enum", "enum.IntEnum")
            for base in self.bases(value)
        )

    def evaluate_Subscript(self, node, scope):
        value = self.expression(node.value, scope)
        if isinstance(value, Tensor):
            return tensor_views.index(value, node.slice, lambda part: self.integer(part, scope))
        index = self.integer(node.slice, scope)
        return element(value, index) if index is not None else UNKNOWN

    def integer(self, node, scope):
        """The compile-time integer that ``node`` is, or None."""
        value = self.expression(node, scope)
        return value.value if is_integer(value) else None

    def evaluate_Lambda(self, node, scope):
        return FunctionValue(node, scope)

    # --- calls

    def evaluate_Call(self, node, scope):
        function = self.expression(node.func, scope)
        if isinstance(function, ApiName):
            return self.api_call(function.path, node, scope)
        if isinstance(function, ClassValue):
            return Instance(function)
        if isinstance(function, BuiltinName):
            return self.builtin_call(function.name, node, scope)
        if isinstance(node.func, ast.Attribute):
            value = self.expression(node.func.value, scope)
            if isinstance(value, Tensor):
                return self.tensor_call(value, node, scope)
        return UNKNOWN

    def arguments(self, node, signature, scope):
        """Value of each parameter that a call surely passes, by name."""
        bound = bind(node, signature)
        return {name: self.expression(value, scope) for name, value in bound.arguments.items()}

    def api_call(self, path, node, scope):
        signature = self.api.functions.get(path)
        if signature is None:
            return UNKNOWN
        module, _, name = path.rpartition(".")
        if path == f"{ISA}.register_alloc":
            return Register()
        if module != LANGUAGE:
            return UNKNOWN
        if name in CREATORS:
            return created(self.arguments(node, signature, scope))
        if name.endswith("_range"):
            return Iteration(dynamic=name == "dynamic_range")
        if name in PSUM_RESULTS:
            return Tensor(buffer="psum")
        if name in SBUF_RESULTS:
            return self.language_result(name, self.arguments(node, signature, scope))
        return UNKNOWN

    def language_result(self, name, arguments):
        """Result of an nki.language operation: its buffer, and for element-wise ones the rest."""
        operand = arguments.get("x", UNKNOWN)
        result = Tensor(buffer="sbuf")
        if name == "shared_identity_matrix" and "dst" in arguments:
            return UNKNOWN
        if "axis" in self.api.functions[f"{LANGUAGE}.{name}"].names or "y" in arguments:
            return result
        if isinstance(operand, Tensor):
            return Tensor(operand.shape, None, "sbuf")
        return result

    def builtin_call(self, name, node, scope):
        if name == "range":
            return Iteration(dynamic=False)
        if name in ("list", "dict", "set"):
            return Container(name)
        values = [self.expression(argument, scope) for argument in node.args]
        if node.keywords or not values or not all(is_number(value) for value in values):
            return UNKNOWN
        numbers = [value.value for value in values]
        if name == "min" and len(numbers) > 1:
            return Constant(min(numbers))
        if name == "max" and len(numbers) > 1:
            return Constant(max(numbers))
        if name == "int" and len(numbers) == 1:
            return Constant(int(numbers[0]))
        return UNKNOWN

    def tensor_call(self, tensor, node, scope):
        signature = self.api.tensor_methods.get(node.func.attr)
        if signature is None:
            return UNKNOWN
        return tensor_views.call(tensor, node.func.attr, self.arguments(node, signature, scope))


def created(arguments):
    buffer = arguments.get("buffer", ApiName(f"{LANGUAGE}.sbuf"))
    name = BUFFERS.get(language_name(buffer))
    shape = tensor_views.sizes(arguments.get("shape", UNKNOWN))
    start = None
    row = None
    if name in ("sbuf", "psum"):
        start = 0 if arguments.get("address", NONE) == NONE else None
        row = Tensor(shape).free_size if shape else None
    return Tensor(shape, dtype_name(arguments.get("dtype", UNKNOWN)), name, start, row)


def language_name(value):
    """`add` of `nki.language.add`; None for anything else."""
    if isinstance(value, ApiName) and value.path.startswith(LANGUAGE + "."):
        return value.path[len(LANGUAGE) + 1 :]
    return None


def dtype_name(value):
    name = value.value if isinstance(value, Constant) else language_name(value)
    return name if name in DTYPES else None


def is_number(value):
    return isinstance(value, Constant) and type(value.value) in (int, float)


def element(value, index):
    if isinstance(value, Sequence) and value.kind == "tuple":
        if -len(value.items) <= index < len(value.items):
            return value.items[index]
    return UNKNOWN


def enum_members(node):
    """Names assigned in the body of an Enum class."""
    return {
        target.id
        for statement in node.body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }
