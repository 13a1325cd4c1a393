"""Which names a function, class or module binds, and where a name is looked up.

Flow-insensitive: a name has all the bindings that its scope gives it anywhere. What a binding is
worth is decided in evaluate.py.
"""

import ast
from dataclasses import dataclass

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(frozen=True, eq=False)
class Binding:
    """One place that gives a name a value.

    kind: "import", "function", "class", "value" (an expression, or the element of it that ``path``
    leads to), "item" (an element of the iterable ``expression``), "parameter" or "unknown".
    module, attribute, level: of an import; attribute is None for `import module`.
    """

    kind: str
    node: ast.AST
    expression: ast.AST = None
    path: tuple = ()
    module: str = ""
    attribute: str = None
    level: int = 0


class Scope:
    """Names bound directly in one module, function, lambda or comprehension."""

    def __init__(self, module, node, parent):
        self.module = module
        self.node = node
        self.parent = parent
        self.bindings = {}
        self.star_imports = []
        self.foreign = set()
        self.values = {}

    def add(self, name, binding):
        self.bindings.setdefault(name, []).append(binding)

    def owner(self, name):
        """The innermost scope from here outwards that binds ``name``, or None."""
        scope = self
        while scope is not None:
            if name in scope.bindings and name not in scope.foreign:
                return scope
            scope = scope.parent
        return None


class Scopes:
    """Scopes of all modules, made once each; nested ones know their parent."""

    def __init__(self):
        self.by_node = {}

    def all(self):
        return self.by_node.values()

    def of_module(self, module):
        if module.tree not in self.by_node:
            scope = Scope(module, module.tree, None)
            collect(scope, module.tree.body)
            add_global_writes(scope)
            self.by_node[module.tree] = scope
        return self.by_node[module.tree]

    def of_function(self, node, parent):
        """Scope of a function, lambda or comprehension that stands in ``parent``."""
        if node not in self.by_node:
            scope = Scope(parent.module, node, parent)
            if isinstance(node, COMPREHENSIONS):
                for generator in node.generators:
                    bind_target(scope, generator.target, Binding("unknown", generator.target))
            else:
                for argument in parameters(node.args):
                    scope.add(argument.arg, Binding("parameter", argument))
                if not isinstance(node, ast.Lambda):
                    collect(scope, node.body)
            self.by_node[node] = scope
        return self.by_node[node]


def parameters(arguments):
    """All parameter nodes of a signature, in order, stars included."""
    found = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return found + [star for star in (arguments.vararg, arguments.kwarg) if star is not None]


def add_global_writes(scope):
    """A function that declares `global name` may assign it: the module's value is unknown."""
    declared = {
        name for node in ast.walk(scope.node) if isinstance(node, ast.Global) for name in node.names
    }
    for name in declared:
        scope.add(name, Binding("unknown", scope.node))


def collect(scope, statements):
    """Add what ``statements`` bind to ``scope``; functions and classes inside are not entered."""
    for statement in statements:
        collect_one(scope, statement)


def collect_one(scope, node):
    if isinstance(node, FUNCTIONS):
        scope.add(node.name, Binding("function", node))
        return
    if isinstance(node, ast.ClassDef):
        scope.add(node.name, Binding("class", node))
        return
    if isinstance(node, (ast.Global, ast.Nonlocal)):
        scope.foreign.update(node.names)
    elif isinstance(node, ast.Import):
        for alias in node.names:
            name = alias.asname or alias.name.split(".")[0]
            target = alias.name if alias.asname else name
            scope.add(name, Binding("import", node, module=target))
    elif isinstance(node, ast.ImportFrom):
        collect_import_from(scope, node)
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            bind_target(scope, target, Binding("value", node, node.value))
    elif isinstance(node, ast.AnnAssign):
        if node.value is not None:
            bind_target(scope, node.target, Binding("value", node, node.value))
    elif isinstance(node, ast.AugAssign):
        bind_target(scope, node.target, Binding("unknown", node))
    elif isinstance(node, (ast.For, ast.AsyncFor)):
        bind_target(scope, node.target, Binding("item", node, node.iter))
    elif isinstance(node, (ast.With, ast.AsyncWith)):
        for item in node.items:
            if item.optional_vars is not None:
                bind_target(scope, item.optional_vars, Binding("unknown", node))
    elif isinstance(node, ast.ExceptHandler) and node.name:
        scope.add(node.name, Binding("unknown", node))
    elif isinstance(node, ast.NamedExpr):
        bind_target(scope, node.target, Binding("value", node, node.value))
    elif type(node).__name__ in ("MatchAs", "MatchStar") and node.name:
        scope.add(node.name, Binding("unknown", node))
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.Lambda, *COMPREHENSIONS)):
            collect_one(scope, child)


def collect_import_from(scope, node):
    for alias in node.names:
        if alias.name == "*":
            scope.star_imports.append(node)
        else:
            scope.add(
                alias.asname or alias.name,
                Binding(
                    "import",
                    node,
                    module=node.module or "",
                    attribute=alias.name,
                    level=node.level,
                ),
            )


def bind_target(scope, target, binding):
    """Bind every name of an assignment target; tuple elements remember their position."""
    if isinstance(target, ast.Name):
        scope.add(target.id, binding)
    elif isinstance(target, (ast.Tuple, ast.List)):
        starred = any(isinstance(element, ast.Starred) for element in target.elts)
        for index, element in enumerate(target.elts):
            if starred or binding.kind != "value":
                inner = Binding("unknown", binding.node)
            else:
                inner = Binding("value", binding.node, binding.expression, (*binding.path, index))
            bind_target(scope, element, inner)
    elif isinstance(target, ast.Starred):
        bind_target(scope, target.value, Binding("unknown", binding.node))
