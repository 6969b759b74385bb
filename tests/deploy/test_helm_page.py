"""The page about Helm and Kustomize: its commands print what it shows, and it names each set of values and overlay."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path

import pytest

from kproxy.testing.cluster import MockCluster
from tests.howto import DOCS, Reader
from tests.support.built_programs import built
from tests.support.helm import SETS

pytestmark = pytest.mark.tools("helm", "kustomize")
PAGE = (DOCS / "kubernetes.md").read_text()


@pytest.mark.parametrize("example", ["helm", "kustomize", "webhook chart"])
def test_an_example_of_the_page_runs(example: str, tmp_path: Path) -> None:
    """Its folder has deploy/, and Helm and Kustomize are on the path."""
    (tmp_path / "deploy").symlink_to(DOCS.parent / "deploy")
    with ExitStack() as stack:
        reader = Reader(tmp_path, stack.enter_context(MockCluster(1)), stack)
        reader.environment["PATH"] += f":{built('helm').parent}"
        assert reader.work_through("kubernetes.md", example) >= 2


def test_the_page_names_each_set_and_overlay() -> None:
    """And none that is not there."""
    rows = re.findall(r"^\| `(\w+\.yaml|\w+)` \| [^|]+ \|$", PAGE, re.MULTILINE)
    overlays = [path.name for path in (DOCS.parent / "deploy" / "kustomize" / "overlays").iterdir()]
    assert sorted(rows) == sorted([*(path.name for path in SETS), *overlays])
