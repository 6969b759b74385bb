"""Print figures about the structure of the code: `make house`, or `python -m tests.qa.house [--names] [--docstrings]`.

Each figure has a goal that the structure is measured against. Counts are made from the source alone; the costs of a
frame come from tests.qa.frame_costs, which drives a session by hand.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = "kproxy"
POOR_BEGINNINGS = ("What", "Whether", "Who", "Where", "Of", "As", "All", "Those", "It", "Nothing")
"""First words of a docstring that neither say what a function does nor what an object is."""
LEAST_WORDS = 6
"""Words that the docstring of a function has at least."""
SMALL = 60
"""Lines up to which a module that only one other imports counts as a part of that one."""


class Module:
    """Source of one module: its dotted name, its lines and its syntax tree."""

    def __init__(self, path: Path) -> None:
        relative = path.relative_to(ROOT)
        parts = relative.with_suffix("").parts
        self.is_package = parts[-1] == "__init__"
        self.name = ".".join(parts[:-1] if self.is_package else parts)
        self.path = relative
        self.text = path.read_text()
        self.lines = self.text.count("\n")
        self.tree = ast.parse(self.text)

    @property
    def package(self) -> str:
        """Return the dotted name of the package that relative imports of one dot start from."""
        return self.name if self.is_package else self.name.rpartition(".")[0]


@cache
def read_modules() -> dict[str, Module]:
    """Return all modules of kproxy by their dotted names."""
    found = (Module(path) for path in sorted((ROOT / PACKAGE).rglob("*.py")))
    return {module.name: module for module in found}


def imported_names(module: Module) -> Iterator[str]:
    """Yield the dotted names that `module` imports anywhere, within functions and for type checking among them."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = module.package.split(".")[: len(module.package.split(".")) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            yield from (f"{base}.{alias.name}" for alias in node.names)
            yield base


def import_graph(modules: dict[str, Module]) -> dict[str, set[str]]:
    """Return for each module those it imports. A package's own `__init__` counts only where a name of it is meant."""
    graph: dict[str, set[str]] = {}
    for name, module in modules.items():
        direct = set(imported_names(module))
        below = {full.rpartition(".")[0] for full in direct if full in modules}
        graph[name] = {full for full in direct if full in modules and full != name and full not in below}
    return graph


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules that import one another, directly or by others; largest first."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(name: str) -> None:
        number[name] = low[name] = len(number)
        stack.append(name)
        for other in sorted(graph[name]):
            if other not in number:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], number[other])
        if low[name] == number[name]:
            group = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(group) > 1:
                found.append(sorted(group))

    for name in graph:
        if name not in number:
            visit(name)
    return sorted(found, key=len, reverse=True)


def defined_names(module: Module) -> Iterator[str]:
    """Yield the names of classes and aliases of types that `module` defines at its top level."""
    for node in module.tree.body:
        if isinstance(node, ast.ClassDef):
            yield node.name
            continue
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        for target in targets:
            if isinstance(target, ast.Name) and re.fullmatch(r"_?[A-Z][a-z0-9]+(?:[A-Z][A-Za-z0-9]*)?", target.id):
                yield target.id


def shared_names(modules: dict[str, Module]) -> dict[str, list[str]]:
    """Return the class and alias names that several modules define, with those modules."""
    where = defaultdict(list)
    for module in modules.values():
        for name in sorted(set(defined_names(module))):
            where[name].append(module.name)
    return {name: places for name, places in sorted(where.items()) if len(places) > 1}


def docstrings(module: Module) -> Iterator[tuple[ast.AST, str]]:
    """Yield each class, function, module, constant and field of `module` that has a docstring, with it."""
    for node in ast.walk(module.tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.Module)):
            text = ast.get_docstring(node)
            if text:
                yield node, text
        if isinstance(node, (ast.ClassDef, ast.Module)):
            for before, after in pairwise(node.body):
                match before, after:
                    case ((ast.Assign() | ast.AnnAssign()), ast.Expr(value=ast.Constant(value=str(text)))):
                        yield after, text


def poor_docstrings(modules: dict[str, Module]) -> dict[str, list[str]]:
    """Return the places (`file:line name: first line`) of poor docstrings, by what is wrong with them."""
    found = defaultdict(list)
    for module in modules.values():
        for node, text in docstrings(module):
            first = text.split("\n", 1)[0]
            place = f"{module.path}:{getattr(node, 'lineno', 1)} {getattr(node, 'name', '')}: {first}"
            if re.match(r"\W*(\w+)", text)[1] in POOR_BEGINNINGS:
                found["beginning"].append(place)
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and len(text.split()) < LEAST_WORDS:
                found["short"].append(place)
    return found


def lone_small_modules(modules: dict[str, Module], graph: dict[str, set[str]]) -> list[str]:
    """Return modules of at most SMALL lines that exactly one other module imports."""
    importers = defaultdict(set)
    for name, others in graph.items():
        for other in others:
            importers[other].add(name)
    return [n for n, m in modules.items() if not m.is_package and m.lines <= SMALL and len(importers[n]) == 1]


def sizes(modules: dict[str, Module]) -> list[tuple[str, int, int]]:
    """Return (package, files, lines) for each package below kproxy, and for kproxy's own modules."""
    files: dict[str, int] = defaultdict(int)
    lines: dict[str, int] = defaultdict(int)
    for module in modules.values():
        parts = module.path.parts
        package = parts[1] if len(parts) > 2 else "(top level)"
        files[package] += 1
        lines[package] += module.lines
    return [(package, files[package], lines[package]) for package in sorted(files)]


def main() -> None:
    """Print the figures, or the places that one of them counts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--names", action="store_true", help="list class and alias names of several modules")
    parser.add_argument("--docstrings", action="store_true", help="list docstrings that begin poorly or are short")
    parser.add_argument("--small", action="store_true", help="list small modules that one other imports")
    parser.add_argument("--cycles", action="store_true", help="list the modules of each import cycle")
    wanted = parser.parse_args()
    modules = read_modules()
    graph = import_graph(modules)
    if wanted.names:
        for name, places in shared_names(modules).items():
            print(f"{name}: {', '.join(places)}")
    elif wanted.docstrings:
        for why, places in poor_docstrings(modules).items():
            print(*(f"{why}: {place}" for place in places), sep="\n")
    elif wanted.small:
        print(*lone_small_modules(modules, graph), sep="\n")
    elif wanted.cycles:
        print(*(" ".join(group) for group in cycles(graph)), sep="\n")
    else:
        report(modules, graph)


def report(modules: dict[str, Module], graph: dict[str, set[str]]) -> None:
    """Print each figure with its goal."""
    print(f"{'package':<16}{'files':>7}{'lines':>8}")
    for package, files, lines in sizes(modules):
        print(f"{package:<16}{files:>7}{lines:>8}")
    total = sum(module.lines for module in modules.values())
    print(f"{'together':<16}{len(modules):>7}{total:>8}   (goal: at most 450 files, 64,000 lines)\n")
    poor = poor_docstrings(modules)
    print(f"class and alias names in more than one module: {len(shared_names(modules))} (goal: at most 10)")
    print(f"docstrings with a poor beginning: {len(poor['beginning'])} (goal: 0)")
    print(f"docstrings of functions with under {LEAST_WORDS} words: {len(poor['short'])} (goal: 0)")
    groups = cycles(graph)
    print(f"import cycles: {len(groups)} of {', '.join(str(len(group)) for group in groups) or 'no'} modules (goal: 0)")
    print(f"modules of at most {SMALL} lines that one other imports: {len(lone_small_modules(modules, graph))}")


if __name__ == "__main__":
    main()
