"""Print figures about the structure of the code: `make house`, or `python -m tests.lab.house [--small] [--cycles]`.

Each figure has a goal that the structure is measured against. Counts are made from the source alone; the costs of a
frame come from tests.lab.frame_costs, which drives a session by hand.
"""

from __future__ import annotations

import argparse
import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = "kproxy"
MAX_LINES = 126_700  # lines of kproxy/*.py; a change that removes code lowers it
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


def run_time_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes of the tree, without the body of `if TYPE_CHECKING:`."""
    pending = [tree]
    while pending:
        node = pending.pop()
        yield node
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            pending.extend(node.orelse)
        else:
            pending.extend(ast.iter_child_nodes(node))


def imported_names(module: Module) -> Iterator[str]:
    """Yield the dotted names that `module` imports at run time, including imports within functions."""
    for node in run_time_nodes(module.tree):
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
    parser.add_argument("--small", action="store_true", help="list small modules that one other imports")
    parser.add_argument("--cycles", action="store_true", help="list the modules of each import cycle")
    wanted = parser.parse_args()
    modules = read_modules()
    graph = import_graph(modules)
    if wanted.small:
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
    print(f"{'together':<16}{len(modules):>7}{total:>8}   (limit: {MAX_LINES} lines)\n")
    groups = cycles(graph)
    print(f"import cycles: {len(groups)} of {', '.join(str(len(group)) for group in groups) or 'no'} modules (goal: 0)")
    print(f"modules of at most {SMALL} lines that one other imports: {len(lone_small_modules(modules, graph))}")


if __name__ == "__main__":
    main()
