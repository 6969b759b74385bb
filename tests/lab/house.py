"""Print the budgets of the code's structure: `make house`, or `python -m tests.lab.house [--small] [--cycles]`.

Each figure has a limit and a goal. `make check` fails if a figure exceeds its limit. A change that improves a figure
lowers the limit. Figures are counted in the source; tests.lab.frame_costs measures the costs of a frame.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.lab import prose

ROOT = Path(__file__).parents[2]
PACKAGE = "kproxy"
COMMITS_SINCE = "2026-11-29"  # older commits may have other subjects
SUBJECT = re.compile(r"(?=.{,72}$)[a-z][\w, /.-]*: \S.*")
SMALL = 60  # lines of a module that its only importer could contain
PHRASES = {  # hard phrases per 10,000 words, by kind of text
    "docstrings and comments": (32, 50),
    "help, errors and logs": (5, 50),
    "pages": (17, 50),
    "decisions": (12, 50),
}
FEATURE_BUDGETS = {  # lines, files and lines of tests that a feature adds to the limits and to the goals
    "distribution": (320, 2, 2_000),
    "record content": (6_400, 24, 5_000),  # 4,500 lines of code, each with 0.43 of comments, docstrings and blank lines
}
FEATURE_LINES, FEATURE_FILES, FEATURE_TESTS = (sum(column) for column in zip(*FEATURE_BUDGETS.values(), strict=True))
LIMITS = {  # figure: (limit, goal)
    "lines": (128_900, 106_000 + FEATURE_LINES),  # about 400 above the budgets: rules on record content
    "files": (559 + FEATURE_FILES, 430 + FEATURE_FILES),
    "header lines, per mille": (109, 90),
    "folders and loose modules": (14, 14),
    "cycles of modules": (0, 0),
    "parts of a folder in cycles": (0, 0),
    "protocols": (18, 30),
    "lines of tests outside tests/lab": (130_667 + FEATURE_TESTS, 100_000 + FEATURE_TESTS),
    **{f"phrases in {kind}": limit for kind, limit in PHRASES.items()},
}


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


def header_lines(module: Module) -> int:
    """Return the lines from the start of a module to the end of its last import at the top, and the blank line."""
    ends = [node.end_lineno or 0 for node in module.tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    return max(ends) + 1 if ends else 0


def parts(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """Return for each part of a folder (`runtime.io`, `runtime.server`) the parts of this folder that it imports."""
    found: dict[str, set[str]] = defaultdict(set)
    for name, others in graph.items():
        part = name.split(".")[1:3]
        for other in others:
            imported = other.split(".")[1:3]
            if part != imported and len(part) == len(imported) == 2 and part[0] == imported[0]:
                found[".".join(part)].add(".".join(imported))
                found.setdefault(".".join(imported), set())
    return found


def protocols(module: Module) -> int:
    """Return the number of the module's protocol classes."""
    classes = [node for node in ast.walk(module.tree) if isinstance(node, ast.ClassDef)]
    return sum(any(ast.unparse(base).startswith("Protocol") for base in node.bases) for node in classes)


def figures() -> dict[str, int]:
    """Return the value of each figure in `LIMITS`."""
    modules = read_modules()
    graph = import_graph(modules)
    lines = sum(module.lines for module in modules.values())
    pages = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "SECURITY.md", ROOT / "docs"]
    rates = prose.rates([ROOT / PACKAGE, *pages])
    tests = [path for path in (ROOT / "tests").rglob("*.py") if path.parts[len(ROOT.parts) + 1] != "lab"]
    return {
        "lines": lines,
        "files": len(modules),
        "header lines, per mille": 1000 * sum(map(header_lines, modules.values())) // lines,
        "folders and loose modules": len({module.path.parts[1] for module in modules.values()}),
        "cycles of modules": len(cycles(graph)),
        "parts of a folder in cycles": sum(map(len, cycles(parts(graph)))),
        "protocols": sum(map(protocols, modules.values())),
        "lines of tests outside tests/lab": sum(path.read_text().count("\n") for path in tests),
        **{f"phrases in {kind}": rate for kind, rate in rates.items()},
    }


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
    parser.add_argument("--check", action="store_true", help="exit with 1 for a figure or a subject of a commit")
    wanted = parser.parse_args()
    modules = read_modules()
    graph = import_graph(modules)
    if wanted.check:
        sys.exit("\n".join([*exceeded(), *wrong_subjects(commit_subjects())]) or 0)
    elif wanted.small:
        print(*lone_small_modules(modules, graph), sep="\n")
    elif wanted.cycles:
        print(*(" ".join(group) for group in cycles(graph)), sep="\n")
    else:
        report(modules, graph)


def report(modules: dict[str, Module], graph: dict[str, set[str]]) -> None:
    """Print the size of each folder, and each figure with its limit and its goal."""
    print(f"{'folder':<16}{'files':>7}{'lines':>8}")
    for package, files, lines in sizes(modules):
        print(f"{package:<16}{files:>7}{lines:>8}")
    print(f"\n{'figure':<36}{'now':>8}{'limit':>9}{'goal':>9}")
    for name, value in figures().items():
        limit, goal = LIMITS[name]
        missed = "" if value <= goal else "  missed"
        print(f"{name:<36}{value:>8}{limit:>9}{goal:>9}{missed}")
    print(f"\nmodules of at most {SMALL} lines that one other imports: {len(lone_small_modules(modules, graph))}")
    for group in cycles(parts(graph)):
        print(f"parts in a cycle: {' '.join(group)}")


def exceeded() -> list[str]:
    """Return a message for each figure above its limit."""
    return [
        f"{name}: expected at most {LIMITS[name][0]}, got {value} (at LIMITS of tests/lab/house.py)"
        for name, value in figures().items()
        if value > LIMITS[name][0]
    ]


def commit_subjects() -> list[str]:
    """Return the subjects of commits since COMMITS_SINCE; none without git or outside of a repository."""
    command = ["git", "log", "--no-merges", f"--since={COMMITS_SINCE}", "--format=%s"]
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        return []


def wrong_subjects(subjects: list[str]) -> list[str]:
    return [
        f"expected `area: imperative object` in at most 72 characters, got {one!r} (at the subject of a commit)"
        for one in subjects
        if not SUBJECT.fullmatch(one)
    ]


if __name__ == "__main__":
    main()
