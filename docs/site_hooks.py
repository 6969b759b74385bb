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
from collections.abc import Iterator
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
    for path, text in {**schemas(), **llms_files(config.nav, config.site_url)}.items():
        files.append(File.generated(config, path, content=text))
    return files


def schemas() -> dict[str, str]:
    """Return the JSON Schemas of documents at the places that their `$id` names; none without one."""
    from kproxy.base.distribution import project_url
    from kproxy.cli.printouts import DIALECTS, DOCUMENTS, identified_schema

    found = [identified_schema(what, draft) for what in DOCUMENTS for draft in DIALECTS]
    return {one["$id"].removeprefix(f"{project_url()}/"): json.dumps(one) for one in found if "$id" in one}


def llms_files(nav: list[Any], site: str | None) -> dict[str, str]:
    """Return llms.txt and llms-full.txt (https://llmstxt.org): pages with their first sentences, and all pages as text.

    `site`: the URL in front of links, without one they are relative to the root of the site.
    """
    pages = {page: _text_of(page) for _, page in nav_pages(nav)}
    about = first_sentence(pages["index.md"])
    lines, full, group = ["# kproxy", "", f"> {about}"], [], ""
    for heading, page in nav_pages(nav):
        title = re.search(r"^# (.+)$", pages[page], re.MULTILINE)
        assert title is not None, f"expected a title, got none (at {page})"
        if heading != group:
            lines, group = [*lines, "", f"## {heading}", ""], heading
        lines.append(f"- [{title[1]}]({_address(page, site)}): {first_sentence(pages[page])}")
        links = re.compile(r"\]\((?![a-z]+:)([^)\s#]+)")
        parts = re.split(r"(^```.*?^```$)", pages[page], flags=re.MULTILINE | re.DOTALL)
        parts[::2] = [
            links.sub(lambda found, at=page: f"]({_address(found[1], site, at)}", part) for part in parts[::2]
        ]
        full.append("".join(parts).strip())
    return {"llms.txt": "\n".join(lines) + "\n", "llms-full.txt": "\n\n".join(full) + "\n"}


def nav_pages(nav: list[Any], group: str = "Overview") -> Iterator[tuple[str, str]]:
    """Yield group and page of each entry of the navigation."""
    for entry in nav:
        for title, place in entry.items():
            yield from nav_pages(place, title) if isinstance(place, list) else [(group, place)]


def first_sentence(text: str) -> str:
    """Return the first sentence below the title of a page, without links, emphasis and code marks."""
    for block in re.split(r"\n\s*\n", text.partition("# ")[2].partition("\n")[2]):
        words = " ".join(block.split())
        if words and not words.startswith(("#", "<", ">", "|", "-", "`" * 3, "!")):
            plain = re.sub(r"[*`]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", words))
            return re.sub(r":$", ".", re.split(r"(?<=[.!?])\s", plain, maxsplit=1)[0])
    raise ValueError(f"expected a paragraph, got none (at {text[:60]!r})")


def _text_of(page: str) -> str:
    """Return a page with its links as they are on the site, without the marks of generated parts."""
    source = next((path for path, name in ELSEWHERE.items() if name == page), f"docs/{page}")
    return re.sub(r"^<!--.*?-->\n", "", for_site((ROOT / source).read_text(), page), flags=re.MULTILINE)


def _address(target: str, site: str | None, page: str = "") -> str:
    """Return the address of a page or file of the site, named from another page."""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
    return (site or "") + re.sub(r"\.md$", ".html", path)


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
