"""Finds what makes a result depend on more than the arguments: clocks, dice, files, sockets, unordered iteration.

In comes Python source; out go findings with their line. tests/test_purity.py runs it over the pure rooms. It reads the
syntax tree only: names and attributes count as sets where the same collection of files annotates or builds them so, and
an attribute that one class declares as a set and another as something ordered is judged by `self` alone.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

REFUSED_MODULES = frozenset(
    [
        "asyncio",
        "concurrent",
        "ctypes",
        "fcntl",
        "getpass",
        "glob",
        "http",
        "io",
        "locale",
        "logging",
        "mmap",
        "multiprocessing",
        "os",
        "pathlib",
        "pickle",
        "platform",
        "queue",
        "random",
        "resource",
        "secrets",
        "select",
        "selectors",
        "shelve",
        "shutil",
        "signal",
        "socket",
        "socketserver",
        "sqlite3",
        "ssl",
        "subprocess",
        "tempfile",
        "threading",
        "time",
        "urllib",
        "uuid",
        "warnings",
        "weakref",
        "zoneinfo",
    ]
)
REFUSED_CALLS = frozenset(
    ["open", "input", "print", "exec", "eval", "__import__", "breakpoint", "hash", "id"]
)
REFUSED_ATTRIBUTES = {
    "now": "the clock",
    "utcnow": "the clock",
    "today": "the clock",
    "environ": "the environment",
    "urandom": "dice",
    "random": "dice",
}
SET_TYPES = frozenset(["set", "frozenset", "Set", "FrozenSet", "AbstractSet", "MutableSet"])
SET_METHODS = frozenset(["union", "intersection", "difference", "symmetric_difference"])
KEY_VIEWS = frozenset(["keys", "items"])
# What looks at all members and answers the same in whatever order they come. min and max do so without a key only.
ORDER_FREE = frozenset(
    ["sorted", "len", "sum", "any", "all", "set", "frozenset", "min", "max", "isinstance", "bool"]
)
ORDER_BOUND = frozenset(
    ["list", "tuple", "enumerate", "zip", "map", "filter", "iter", "next", "reversed", "dict"]
)
ORDER_BOUND_METHODS = frozenset(["join", "extend", "fromkeys", "array", "fromiter"])


@dataclass(frozen=True, slots=True)
class Finding:
    """One place that is not pure: 1-based line and what is wrong there."""

    line: int
    what: str


@dataclass(slots=True)
class Names:
    """Attribute and function names of a collection of files, by whether they hold or return sets."""

    sets: dict[str, bool] = field(default_factory=dict)
    classes: dict[str, dict[str, bool]] = field(default_factory=dict)

    def note(self, name: str, is_set: bool, owner: str | None) -> None:
        """Record one declaration. A name that is declared both ways is no longer a set by its name alone."""
        self.sets[name] = self.sets.get(name, True) and is_set
        if owner:
            self.classes.setdefault(owner, {})[name] = is_set


def declared_names(trees: Iterable[ast.Module]) -> Names:
    """Collect which attributes are annotated as sets, and which functions say that they return one."""
    names = Names()
    for tree in trees:
        for owner, node in _with_owner(tree, None):
            if isinstance(node, ast.AnnAssign):
                target = node.target
                if isinstance(target, ast.Name) and owner:
                    names.note(target.id, _is_set_type(node.annotation), owner)
                elif isinstance(target, ast.Attribute):
                    names.note(target.attr, _is_set_type(node.annotation), owner)
            elif isinstance(node, ast.FunctionDef):
                names.note(node.name, _is_set_type(node.returns), owner)
    return names


def _with_owner(node: ast.AST, owner: str | None) -> Iterator[tuple[str | None, ast.AST]]:
    for child in ast.iter_child_nodes(node):
        yield owner, child
        yield from _with_owner(child, child.name if isinstance(child, ast.ClassDef) else owner)


def _is_set_type(annotation: ast.expr | None) -> bool:
    match annotation:
        case ast.Subscript(value=value):
            return _is_set_type(value)
        case ast.BinOp(op=ast.BitOr(), left=left, right=right):
            return _is_set_type(left) or _is_set_type(right)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in SET_TYPES
        case ast.Constant(value=str(text)):
            return _is_set_type(ast.parse(text, mode="eval").body)
    return False


def findings(source: str, names: Names | None = None) -> list[Finding]:
    """Check one module's source; `names` comes from declared_names over all files that share types with it."""
    tree = ast.parse(source)
    visitor = _Visitor(names or declared_names([tree]))
    visitor.visit(tree)
    return sorted(visitor.found, key=lambda finding: (finding.line, finding.what))


class _Visitor(ast.NodeVisitor):
    """Walks one module with a stack of local names that are known to be sets."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.found: list[Finding] = []
        self.scopes: list[dict[str, bool]] = [{}]
        self.owners: list[str] = []
        self.functions: list[str] = []

    def _add(self, node: ast.expr | ast.stmt, what: str) -> None:
        self.found.append(Finding(node.lineno, what))

    # Imports, names and calls that reach outside

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._check_module(node, alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        self._check_module(node, node.module or "")
        for alias in node.names:
            self._check_module(node, f"{node.module}.{alias.name}")

    def _check_module(self, node: ast.stmt, module: str) -> None:
        parts = module.split(".")
        if parts[0] in REFUSED_MODULES or module.startswith("numpy.random"):
            self._add(node, f"imports {module}")

    def visit_Global(self, node: ast.Global) -> None:
        self._add(node, "keeps state in a global")

    def visit_Attribute(self, node: ast.Attribute) -> None:
        stands_for_module = isinstance(node.value, ast.Name | ast.Attribute)
        if node.attr in ("now", "today", "utcnow"):
            # `job.now` may be a field; the clock's are methods of datetime and date
            stands_for_module = ast.unparse(node.value).split(".")[-1] in ("datetime", "date")
        elif node.attr == "random":
            stands_for_module = ast.unparse(node.value) in ("np", "numpy")
        if stands_for_module and node.attr in REFUSED_ATTRIBUTES:
            self._add(node, f"reads {REFUSED_ATTRIBUTES[node.attr]}: {ast.unparse(node)}")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name):
            self._check_call(node, node.func.id)
        elif isinstance(node.func, ast.Attribute):
            if node.func.attr == "pop" and not node.args and self._is_set(node.func.value):
                self._add(node, "pops any member of a set")
            if node.func.attr in ORDER_BOUND_METHODS:
                self._check_arguments(node, node.func.attr)
        for argument in node.args:
            if isinstance(argument, ast.Starred):
                self._check_iterated(argument.value)
        self._visit_call_parts(node)

    def _check_call(self, node: ast.Call, name: str) -> None:
        in_hash = bool(self.functions) and self.functions[-1] == "__hash__"
        if name in REFUSED_CALLS and not (name == "hash" and in_hash) and not self._is_local(name):
            self._add(node, f"calls {name}()")
        keyed = name in ("min", "max") and any(keyword.arg == "key" for keyword in node.keywords)
        if name in ORDER_BOUND or keyed:
            self._check_arguments(node, name)

    def _check_arguments(self, node: ast.Call, name: str) -> None:
        for argument in node.args:
            if self._is_set(argument):
                self._add(node, f"{name}() takes a set in its own order: {ast.unparse(argument)}")

    def _visit_call_parts(self, node: ast.Call) -> None:
        order_free = isinstance(node.func, ast.Name) and node.func.id in ORDER_FREE
        keyed = isinstance(node.func, ast.Name) and node.func.id in ("min", "max") and bool(node.keywords)
        for part in ast.iter_child_nodes(node):
            if order_free and not keyed and isinstance(part, ast.GeneratorExp):
                self._visit_comprehension(part, ordered=False)
            else:
                self.visit(part)

    # Iteration in no order

    def _check_iterated(self, node: ast.expr) -> None:
        if self._is_set(node):
            self._add(node, f"iterates over a set: {ast.unparse(node)} (sort it first)")

    def visit_For(self, node: ast.For) -> None:
        self._check_iterated(node.iter)
        self.generic_visit(node)

    def visit_YieldFrom(self, node: ast.YieldFrom) -> None:
        self._check_iterated(node.value)
        self.generic_visit(node)

    def _visit_comprehension(
        self, node: ast.ListComp | ast.GeneratorExp | ast.DictComp | ast.SetComp, ordered: bool
    ) -> None:
        if ordered:
            for generator in node.generators:
                self._check_iterated(generator.iter)
        self.generic_visit(node)

    def visit_ListComp(self, node: ast.ListComp) -> None:
        self._visit_comprehension(node, ordered=True)

    def visit_DictComp(self, node: ast.DictComp) -> None:
        self._visit_comprehension(node, ordered=True)

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> None:
        self._visit_comprehension(node, ordered=True)

    def _visit_display(self, node: ast.List | ast.Tuple) -> None:
        for element in node.elts:
            if isinstance(element, ast.Starred):
                self._check_iterated(element.value)
        self.generic_visit(node)

    def visit_List(self, node: ast.List) -> None:
        self._visit_display(node)

    def visit_Tuple(self, node: ast.Tuple) -> None:
        self._visit_display(node)

    # Scopes: which local names hold sets

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.owners.append(node.name)
        self.generic_visit(node)
        self.owners.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        self.scopes.append({argument.arg: _is_set_type(argument.annotation) for argument in arguments})
        self.functions.append(node.name)
        self.generic_visit(node)
        self.functions.pop()
        self.scopes.pop()

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if isinstance(node.target, ast.Name):
            self.scopes[-1][node.target.id] = _is_set_type(node.annotation)
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        is_set = self._is_set(node.value)
        for target in node.targets:
            if isinstance(target, ast.Name):
                self.scopes[-1][target.id] = is_set
            elif isinstance(target, ast.Tuple | ast.List):
                self._check_iterated(node.value)
        self.generic_visit(node)

    def _is_local(self, name: str) -> bool:
        return any(name in scope for scope in self.scopes)

    def _is_set(self, node: ast.expr) -> bool:
        match node:
            case ast.Set() | ast.SetComp():
                return True
            case ast.Name(id=name):
                return next((scope[name] for scope in reversed(self.scopes) if name in scope), False)
            case ast.Attribute(value=ast.Name(id="self"), attr=name) if self.owners:
                own = self.names.classes.get(self.owners[-1], {})
                return own.get(name, self.names.sets.get(name, False))
            case ast.Attribute(attr=name):
                return self.names.sets.get(name, False)
            case ast.BinOp(op=ast.BitOr() | ast.BitAnd() | ast.BitXor() | ast.Sub(), left=left, right=right):
                return any(self._is_set(side) or _is_key_view(side) for side in (left, right))
            case ast.IfExp(body=body, orelse=orelse):
                return self._is_set(body) or self._is_set(orelse)
            case ast.BoolOp(values=values):
                return any(self._is_set(value) for value in values)
            case ast.NamedExpr(value=value):
                return self._is_set(value)
            case ast.Call(func=func):
                return self._makes_set(func)
        return False

    def _makes_set(self, func: ast.expr) -> bool:
        match func:
            case ast.Name(id=name):
                return name in ("set", "frozenset") or self.names.sets.get(name, False)
            case ast.Attribute(value=value, attr="copy"):
                return self._is_set(value)
            case ast.Attribute(value=value, attr=name):
                return (name in SET_METHODS and self._is_set(value)) or self.names.sets.get(name, False)
        return False


def _is_key_view(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in KEY_VIEWS
