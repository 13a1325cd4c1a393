"""Which code is kernel code: every @nki.jit function, and what it reaches.

A function is reached when kernel code names it, be it called, passed or stored; a method when
kernel code uses its class and mentions an attribute of that name. All the rest of a file is host
code and is left alone.
"""

import ast
from dataclasses import dataclass

from .scopes import COMPREHENSIONS, FUNCTIONS
from .values import ApiName, ClassValue, EnumMember, FunctionValue, Instance, LibraryName

# Methods that run without being named.
IMPLICIT_METHODS = frozenset({"__init__", "__post_init__", "__call__"})

# Fields of syntax nodes that are not code of the kernel.
NOT_CODE = frozenset({"annotation", "returns", "decorator_list", "type_comment", "type_params"})

WITH_SCOPE = (ast.Lambda, *COMPREHENSIONS)

JIT = "nki.jit"
OLD_JIT = "neuronxcc.nki.jit"
SIMULATE = "nki.simulate"


@dataclass(eq=False)
class Unit:
    """One function of kernel code. nodes: (node, scope) of all its code, nested functions too."""

    function: FunctionValue
    scope: object
    is_kernel: bool
    nodes: list

    @property
    def node(self):
        return self.function.node

    @property
    def module(self):
        return self.function.module


class Program:
    """The kernel code of the checked modules: ``units`` and ``classes``, in the order reached.

    ``jit_calls``: (module, ast.Call) of every call of nki.jit, decorators included.
    """

    def __init__(self, sources, evaluator):
        self.evaluator = evaluator
        self.units = []
        self.classes = []
        self.jit_calls = []
        self.mentioned = set(IMPLICIT_METHODS)
        self.unit_of = {}
        self.pending = []
        self.seen_names = set()
        for module in sources.checked:
            for function in self.kernels(module):
                self.reach_function(function, is_kernel=True)
        self.spread()

    # --- finding kernels

    def kernels(self, module):
        """Every function of a module that nki.jit or nki.simulate is applied to."""
        scope = self.evaluator.scopes.of_module(module)
        found = list(decorated(module.tree.body, scope, None, self.evaluator))
        for function in found:
            calls = jit_decorators(function, self.evaluator)
            self.jit_calls += [(module, call) for call in calls if isinstance(call, ast.Call)]
        for node, inner in walk(module.tree.body, scope, self.evaluator.scopes):
            if isinstance(node, ast.Call):
                called = self.evaluator.expression(node.func, inner)
                if called == ApiName(JIT):
                    self.jit_calls.append((module, node))
                if called in (ApiName(JIT), ApiName(SIMULATE)) and node.args:
                    function = self.evaluator.expression(node.args[0], inner)
                    if isinstance(function, FunctionValue):
                        found.append(function)
        return found

    # --- growing

    def spread(self):
        while True:
            while self.pending:
                self.follow(self.pending.pop(0))
            for value in list(self.classes):
                self.reach_methods(value)
            if not self.pending:
                return

    def reach_function(self, function, is_kernel=False):
        if function.node in self.unit_of or isinstance(function.node, ast.Lambda):
            return
        scope = self.evaluator.scopes.of_function(function.node, function.scope)
        if not is_kernel:
            is_kernel = is_jitted(function, self.evaluator)
        nodes = walk(function.node.body, scope, self.evaluator.scopes)
        unit = Unit(function, scope, is_kernel, nodes)
        self.unit_of[function.node] = unit
        self.units.append(unit)
        self.pending.append(unit)

    def reach_class(self, value):
        if value in self.classes:
            return
        self.classes.append(value)
        for statement in value.node.body:
            for part in class_values(statement):
                self.follow_host_value(part, value.scope)

    def reach_methods(self, value):
        for statement in value.node.body:
            if isinstance(statement, FUNCTIONS) and statement.name in self.mentioned:
                self.reach_function(FunctionValue(statement, value.scope, value))

    def follow(self, unit):
        for node, scope in unit.nodes:
            self.follow_node(node, scope)
        for default in [*unit.node.args.defaults, *unit.node.args.kw_defaults]:
            if default is not None:
                self.follow_host_value(default, unit.function.scope)
        if unit.is_kernel:
            for argument in unit.node.args.args:
                self.follow_annotation(argument.annotation, unit.function.scope)

    def follow_host_value(self, expression, scope):
        """What a value that the host computes hands to the kernel.

        A function that the host calls to compute it is host code; one that is stored in a display
        or in an object of a kernel class is kernel code.
        """
        if isinstance(expression, ast.Call):
            if not isinstance(self.evaluator.expression(expression.func, scope), ClassValue):
                return
        for child in ast.iter_child_nodes(expression):
            self.follow_host_value(child, scope)
        if isinstance(expression, (ast.Name, ast.Attribute)):
            self.follow_node(expression, scope)

    def follow_node(self, node, scope):
        if isinstance(node, ast.Attribute):
            self.mentioned.add(node.attr)
        elif not isinstance(node, ast.Name):
            return
        self.follow_value(self.evaluator.expression(node, scope))
        if isinstance(node, ast.Name):
            self.follow_constant(node.id, scope)

    def follow_value(self, value):
        if isinstance(value, FunctionValue):
            if not self.is_nested(value):
                self.reach_function(value)
        elif isinstance(value, ClassValue):
            self.reach_class(value)
        elif isinstance(value, Instance):
            self.reach_class(value.of)
        elif isinstance(value, EnumMember) and isinstance(value.enum, ClassValue):
            self.reach_class(value.enum)

    def is_nested(self, value):
        """A function inside kernel code is walked with the function around it."""
        scope = value.scope
        while scope is not None:
            if scope.node in self.unit_of:
                return True
            scope = scope.parent
        return False

    def follow_constant(self, name, scope):
        """Functions and classes in a module-level table are reached through the table."""
        owner = scope.owner(name)
        if owner is None or (owner, name) in self.seen_names:
            return
        self.seen_names.add((owner, name))
        for binding in owner.bindings[name]:
            if binding.kind == "import":
                self.follow_imported(binding, owner)
            elif owner.parent is None and binding.kind == "value":
                self.follow_host_value(binding.expression, owner)

    def follow_imported(self, binding, owner):
        if binding.attribute is None:
            return
        sources = self.evaluator.sources
        module = sources.imported(owner.module, binding.level, binding.module)
        if module is None:
            return
        scope = self.evaluator.scopes.of_module(module)
        if binding.attribute in scope.bindings:
            self.follow_constant(binding.attribute, scope)

    def follow_annotation(self, annotation, scope):
        """A class that a kernel parameter is annotated with is used by the kernel."""
        if annotation is None:
            return
        for node in ast.walk(annotation):
            if isinstance(node, (ast.Name, ast.Attribute)):
                value = self.evaluator.expression(node, scope)
                if isinstance(value, ClassValue):
                    self.reach_class(value)


def class_values(statement):
    """Expressions in a class body that become fields."""
    if isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
        return [statement.value]
    return []


# --- decorated functions


def decorated(statements, scope, owner, evaluator):
    for node in statements:
        if isinstance(node, FUNCTIONS):
            function = FunctionValue(node, scope, owner)
            if is_jitted(function, evaluator):
                yield function
            inner = evaluator.scopes.of_function(node, scope)
            yield from decorated(node.body, inner, None, evaluator)
        elif isinstance(node, ast.ClassDef):
            yield from decorated(node.body, scope, ClassValue(node, scope), evaluator)
        else:
            for name in ("body", "orelse", "finalbody", "handlers"):
                inner = getattr(node, name, None)
                if isinstance(inner, list):
                    yield from decorated(inner, scope, owner, evaluator)


def jit_decorators(function, evaluator):
    """Decorator expressions of a function that are nki.jit, with the ast.Call if there is one."""
    found = []
    for decorator in getattr(function.node, "decorator_list", ()):
        name = decorator.func if isinstance(decorator, ast.Call) else decorator
        value = evaluator.expression(name, function.scope)
        if value in (ApiName(JIT), LibraryName(OLD_JIT)):
            found.append(decorator)
    return found


def is_jitted(function, evaluator):
    return bool(jit_decorators(function, evaluator))


# --- walking code


def walk(statements, scope, scopes):
    """[(node, scope)] of all code in some statements, outside in, functions inside them too."""
    found = []
    for statement in statements:
        walk_node(statement, scope, scopes, found)
    return found


def walk_node(node, scope, scopes, found):
    """Append (node, scope) of a statement or expression and all inside it."""
    found.append((node, scope))
    if isinstance(node, FUNCTIONS):
        for default in [*node.args.defaults, *node.args.kw_defaults]:
            if default is not None:
                walk_node(default, scope, scopes, found)
        inner = scopes.of_function(node, scope)
        for statement in node.body:
            walk_node(statement, inner, scopes, found)
        return
    if isinstance(node, WITH_SCOPE):
        scope = scopes.of_function(node, scope)
    for name in node._fields:
        if name in NOT_CODE:
            continue
        value = getattr(node, name, None)
        if isinstance(value, list):
            for child in value:
                if isinstance(child, ast.AST):
                    walk_node(child, scope, scopes, found)
        elif isinstance(value, ast.AST):
            walk_node(value, scope, scopes, found)
