"""Hooks of MkDocs: pages from other folders of the repository, and links to files that are not pages.

Strategy: the README is the first page, and more files come along. Links are written for the repository; `for_site`
turns them into those of the site. A link to a file that is not a page leads to the repository. Without `[project.urls]`
in pyproject.toml, it becomes its text.
"""

from __future__ import annotations

import json
import posixpath
import re
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
ELSEWHERE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CODE_OF_CONDUCT.md": "conduct.md",
    **{
        f"tests/lab/{name}/RESULTS.md": f"results/{name}.md"
        for name in ("bench", "conformance", "explore", "matrix", "soak", "suites", "verify")
    },
}
"""File of the repository: page of the site."""
URLS: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"].get("urls", {})
"""Written by `make home`."""
_PICTURE = re.compile(r'\b(src|srcset)="([^"]+)"')
_LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def on_config(config: Any) -> Any:
    """Set the addresses of the site and of the repository."""
    if URLS:
        site = URLS["Documentation"]
        config.site_url = site if site.endswith("/") else config.site_url  # some hosts have no sites
        config.repo_url, config.repo_name = URLS["Source"], URLS["Source"].rpartition("/")[2]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Take the pages in that lie elsewhere."""
    from mkdocs.structure.files import File

    for source, page in ELSEWHERE.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    for path, text in schemas().items():
        files.append(File.generated(config, path, content=text))
    return files


def schemas() -> dict[str, str]:
    """Return the JSON Schemas of documents at the places that their `$id` names; none without one."""
    from kproxy.base.distribution import project_url
    from kproxy.cli.printouts import DIALECTS, DOCUMENTS, identified_schema

    found = [identified_schema(what, draft) for what in DOCUMENTS for draft in DIALECTS]
    return {one["$id"].removeprefix(f"{project_url()}/"): json.dumps(one) for one in found if "$id" in one}


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Its links as they are on the site."""
    return for_site(markdown, page.file.src_uri)


def for_site(markdown: str, page: str) -> str:
    """The text of a page with its links, but not those in code, turned from the repository's into the site's."""
    source = next((path for path, name in ELSEWHERE.items() if name == page), f"docs/{page}")
    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    parts[::2] = [_LINK.sub(lambda found: _link(found, source, page), part) for part in parts[::2]]
    parts[::2] = [
        _PICTURE.sub(lambda found: f'{found[1]}="{_place(found[2], source, page)}"', part) for part in parts[::2]
    ]
    return "".join(parts)


def _link(found: re.Match[str], source: str, page: str) -> str:
    text, target, anchor = found[1], found[2], found[3] or ""
    if "://" in target or target.startswith("mailto:"):
        return found[0]
    place = _place(target, source, page)
    if place is None and URLS:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        place = URLS["Changelog"].removesuffix("CHANGELOG.md") + path
    return f"[{text}]({place}{anchor})" if place else text


def _place(target: str, source: str, page: str) -> str | None:
    """Return where a file that `source` names is from `page` on the site; None if it is not on the site."""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
    if path in ELSEWHERE:
        place = ELSEWHERE[path]
    elif path.startswith("docs/") and (ROOT / path).is_file():
        place = path.removeprefix("docs/")
    else:
        return None
    return posixpath.relpath(place, posixpath.dirname(page) or ".")
