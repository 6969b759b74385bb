"""Write the repository's URL into all files that contain it: `make home URL=https://HOST/OWNER/NAME`.

`home` in `[tool.kproxy]` of pyproject.toml is the only source; `derived` returns the files that follow from it. Without
`home`, no file contains a URL of the repository. `make home URL=none` removes it.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
GROUP, MODULE, IMAGE = "kproxy", "kproxykit", "kproxy"  # Maven group, Go module and image without a repository
README_PLUGIN = '"hatch-fancy-pypi-readme>=25.1"'
REPORT = "private report form of this repository"
SKIPPED = {"node_modules", "target", "dist"}  # folders below clients/ that build tools create
HOSTS = {  # host: group of Maven Central, image registry, site, prefix of pages, path of private reports
    "github.com": ("io.github.", "ghcr.io", "https://{}.github.io/{}/", "", "/security/advisories/new"),
    "gitlab.com": ("io.gitlab.", "registry.gitlab.com", "https://{}.gitlab.io/{}/", "/-",
                   "/-/issues/new?issue[confidential]=true"),
}  # fmt: skip


@dataclass(frozen=True)
class Home:
    """Values that follow from the URL of a repository."""

    url: str
    group: str
    image: str
    site: str
    pages: str
    report: str

    @classmethod
    def parse(cls, text: str) -> Home:
        """Raises ValueError if the text is not the https URL of a repository."""
        url = text.removesuffix("/").removesuffix(".git")
        found = re.fullmatch(
            r"https://([a-z0-9-]+(?:\.[a-z0-9-]+)+)/([A-Za-z0-9][\w-]*)/((?:[A-Za-z0-9][\w.-]*/)*[A-Za-z0-9][\w.-]*)",
            url,
            re.ASCII,
        )
        if found is None or ".." in url or (found[1] == "github.com" and "/" in found[3]):
            raise ValueError(f"expected https://HOST/OWNER/NAME, got {text!r} (at URL)")
        host, owner, name = found.groups()  # a name on GitLab can contain subgroups
        own = (".".join(reversed(host.split("."))) + ".", "", f"{url}#readme", "", "")
        group, registry, site, pages, report = HOSTS.get(host, own)
        image = f"{registry}/{owner}/{name}".lower() if registry else IMAGE  # registries reject upper case
        return cls(url, group + owner.lower(), image, site.format(owner.lower(), name), url + pages, url + report)

    @property
    def path(self) -> str:
        return self.url.split("/", 3)[3]

    @property
    def module(self) -> str:
        """Path of the Go module: its folder in the repository."""
        return self.url.removeprefix("https://") + "/clients/go"

    @property
    def links(self) -> dict[str, str]:
        """The table `[project.urls]`. mkdocs reads it; package indexes show it."""
        return {
            "Homepage": self.url,
            "Documentation": self.site,
            "Source": self.url,
            "Issues": f"{self.pages}/issues",
            "Changelog": f"{self.pages}/blob/main/CHANGELOG.md",
            "Security": self.report,
        }


def read_home(root: Path) -> Home | None:
    """Return the home that pyproject.toml names, or None."""
    table = tomllib.loads((root / "pyproject.toml").read_text())["tool"].get("kproxy", {})
    return Home.parse(table["home"]) if "home" in table else None


def derived(root: Path, home: Home | None) -> dict[Path, str]:
    """Return the text of each file that depends on the home. Other text of these files is kept."""
    edits: list[tuple[str, Callable[[str, Home | None], str]]] = [
        ("pyproject.toml", project),
        ("deploy/helm/kproxy/Chart.yaml", chart),
        ("deploy/helm/kproxy/values.yaml", values),
        *((pattern, images(root)) for pattern in ("deploy/ku*/**/*.yaml", "docs/*.md")),
        ("clients/typescript/package.json", package),
        ("clients/python/pyproject.toml", python_kit),
        ("CHANGELOG.md", changelog),
        *((name, report) for name in ("SECURITY.md", "CODE_OF_CONDUCT.md")),
        *((pattern, maven) for pattern in ("clients/java/**/pom.xml", "clients/**/*.md", "docs/*.md")),
        *((pattern, golang(root)) for pattern in ("clients/go/**/go.mod", "clients/go/**/*.go", "clients/**/*.md")),
        ("docs/*.md", examples(root)),
    ]
    texts: dict[Path, str] = {}
    for pattern, edit in edits:
        for path in sorted(root.glob(pattern)):
            if not SKIPPED & set(path.relative_to(root).parts):
                texts[path] = edit(texts[path] if path in texts else path.read_text(), home)
    return texts


def project(text: str, home: Home | None) -> str:
    """Set the links of the package. A plugin completes the relative links of the README, which package indexes show."""
    tables = r"project\.urls|tool\.kproxy|tool\.hatch\.metadata\.hooks\.fancy-pypi-readme"
    text = re.sub(rf"^\[(?:{tables})\]\n(?:.+\n)*\n", "", text, flags=re.MULTILINE)
    text = text.replace(f", {README_PLUGIN}]", "]").replace('["version", "readme"]', '["version"]')
    text = re.sub(r"^(?:readme = .*\n)?(license = )", r'readme = "README.md"\n\1', text, count=1, flags=re.MULTILINE)
    if home is None:
        return text
    urls = "".join(f'{label} = "{link}"\n' for label, link in home.links.items())
    links = f"""content-type = "text/markdown"
fragments = [{{ path = "README.md" }}]
substitutions = [
    {{ pattern = '\\]\\((?!https?:)([^)]+)\\)', replacement = ']({home.pages}/blob/main/\\1)' }},
    {{ pattern = '(src(?:set)?=")(docs/)', replacement = '\\1{home.pages}/raw/main/\\2' }},
]
"""
    for before, table in (
        ("[project.scripts]\n", f"[project.urls]\n{urls}\n"),
        ("[tool.hatch.version]\n", f'[tool.kproxy]\nhome = "{home.url}"\n\n'),
        ("[tool.hatch.version]\n", f"[tool.hatch.metadata.hooks.fancy-pypi-readme]\n{links}\n"),
    ):
        text = text.replace(before, table + before, 1)
    text = text.replace('dynamic = ["version"]', 'dynamic = ["version", "readme"]').replace(
        'readme = "README.md"\n', "", 1
    )
    return re.sub(r"^(requires = \[.*)\]", rf"\1, {README_PLUGIN}]", text, count=1, flags=re.MULTILINE)


def python_kit(text: str, home: Home | None) -> str:
    text = re.sub(r"^\[project\.urls\]\n(?:.+\n)*\n", "", text, flags=re.MULTILINE)
    urls = f'[project.urls]\nHomepage = "{home.site}"\nSource = "{home.url}"\n\n' if home else ""
    return text.replace("[tool.hatch.version]\n", f"{urls}[tool.hatch.version]\n", 1)


def chart(text: str, home: Home | None) -> str:
    text = re.sub(r"^(?:home: .*|sources: \[.*\])\n", "", text, flags=re.MULTILINE)
    lines = f"home: {home.site}\nsources: [{home.url}]\n" if home else ""
    return re.sub(r"^type: ", lambda found: lines + found[0], text, count=1, flags=re.MULTILINE)


def values(text: str, home: Home | None) -> str:
    image = home.image if home else IMAGE
    return re.sub(r"^(image:\n  repository: )\S+", lambda found: found[1] + image, text, count=1, flags=re.MULTILINE)


def images(root: Path) -> Callable[[str, Home | None], str]:
    """Return the edit of manifests: the image of containers, and its name in the example of kustomize's `images:`."""
    now = read_home(root)
    used = re.escape(now.image if now else IMAGE)
    return lambda text, home: re.sub(
        rf"^( *image: |> images: \[{{name: ){used}(?=[:,])",
        lambda found: found[1] + (home.image if home else IMAGE),
        text,
        flags=re.MULTILINE,
    )


def package(text: str, home: Home | None) -> str:
    text = re.sub(r'^  "(?:homepage|repository|bugs)": .*\n', "", text, flags=re.MULTILINE)
    if home is None:
        return text
    repository = f'{{ "type": "git", "url": "git+{home.url}.git", "directory": "clients/typescript" }}'
    lines = f'  "homepage": "{home.site}",\n  "repository": {repository},\n  "bugs": "{home.links["Issues"]}",\n'
    return re.sub(r'^  "description": .*\n', lambda found: found[0] + lines, text, count=1, flags=re.MULTILINE)


def changelog(text: str, home: Home | None) -> str:
    """Link each version to its release, and *Unreleased* to the commits."""
    text = re.sub(r"(?:\n\[[\w.-]+\]: \S+)+\n\Z", "", text).rstrip("\n") + "\n"
    if home is None:
        return text
    names = re.findall(r"^## \[([\w.-]+)\]", text, re.MULTILINE)
    places = (f"releases/tag/v{name}" if name[0].isdigit() else "commits/main" for name in names)
    return text + "\n" + "".join(f"[{name}]: {home.pages}/{at}\n" for name, at in zip(names, places, strict=True))


def report(text: str, home: Home | None) -> str:
    link = f"[{REPORT}]({home.report})" if home else REPORT
    return re.sub(rf"\[{REPORT}\]\(\S+\)|{REPORT}", lambda _: link, text)


def maven(text: str, home: Home | None) -> str:
    """Set the group of kproxy's artifacts. The root pom also gets the repository."""
    group = home.group if home else GROUP
    text = re.sub(
        r"<groupId>[\w.-]+(</groupId>\s*<artifactId>kproxy-)", lambda found: f"<groupId>{group}{found[1]}", text
    )
    text = re.sub(r"\b[\w.-]+(:kproxy-(?:junit|testcontainers)\b)", lambda found: group + found[1], text)
    text = re.sub(r"\n  <url>.*</url>\n  <scm>.*</scm>(?=\n)", "", text)
    if home is None or "<parent>" in text:
        return text
    lines = (
        f"\n  <url>{home.url}</url>\n  <scm><url>{home.url}</url><connection>scm:git:{home.url}.git</connection></scm>"
    )
    return re.sub(r"\n  <name>.*</name>", lambda found: found[0] + lines, text, count=1)


def golang(root: Path) -> Callable[[str, Home | None], str]:
    """Return the edit that replaces today's module path by that of the home."""
    now = re.findall(r"^module (\S+)", (root / "clients/go/go.mod").read_text(), re.MULTILINE)[0]
    word = re.escape(now)  # in Go between quotes, in go.mod after a keyword; the package's own name stays
    path = re.compile(rf'(?<=")(?:{word})(?=")|(?<=^module ){word}$|(?<=^\t){word}(?= v)|(?<=replace ){word}(?= )'
                      rf"|(?<=go get ){word}\b", re.MULTILINE)  # fmt: skip
    return lambda text, home: path.sub(home.module if home else MODULE, text)


def examples(root: Path) -> Callable[[str, Home | None], str]:
    """Return the edit of the examples of the action and the hooks. Without a home they name a checkout."""
    version = re.findall(r"^version: (\S+)", (root / "deploy/helm/kproxy/Chart.yaml").read_text(), re.MULTILINE)[0]
    now = read_home(root)
    used, cloned = (now.path, now.url) if now else ("./kproxy", "../kproxy")

    def edit(text: str, home: Home | None) -> str:
        action = f"{home.path}@v{version}" if home else "./kproxy"
        repository = home.url if home else "../kproxy"
        text = re.sub(rf"(- uses: ){re.escape(used)}(?:@\S+)?$", rf"\g<1>{action}", text, flags=re.MULTILINE)
        return re.sub(rf"(- repo: ){re.escape(cloned)}$", rf"\g<1>{repository}", text, flags=re.MULTILINE)

    return edit


def main(words: list[str]) -> None:
    """Write all derived files, and print those that changed."""
    text = " ".join(words)
    try:
        home = None if text == "none" else Home.parse(text)
    except ValueError as error:
        sys.exit(str(error))
    for path, content in derived(ROOT, home).items():
        if path.read_text() != content:
            path.write_text(content)
            sys.stdout.write(f"{path.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
