"""Packages of the test kits, built in the copies of their folders and used as a project of a user would use them.

Maven's repository, npm's archive and the wheel are written into `dist/kits`. A Go module has no package: its tag is its
release. So the module is served from a folder of a module proxy, and the example is checked with that module.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from email.parser import Parser
from pathlib import Path

PLACEHOLDER_HOST = "kproxy.test"
"""Host of the Go module's path while go.mod names no repository: Go rejects paths without a host."""
GO_FILES = ("go.mod", "kproxykit.go", "kproxykit_test.go", "README.md", "LICENSE")
INSTALL = ("install", "--no-package-lock", "--no-audit", "--no-fund")
SECONDS = 1800


class PackageError(Exception):
    """A package without an expected file or value."""


def call(*words: str | Path, cwd: Path, **environment: str) -> None:
    """Run a command that writes to this process's output. Raises CalledProcessError."""
    sys.stdout.write(f"$ {' '.join(map(str, words))}\n")
    sys.stdout.flush()
    subprocess.run(words, cwd=cwd, env={**os.environ, **environment}, timeout=SECONDS, check=True)


def package_java(kit: Path, dist: Path, version: str) -> None:
    """Install both artefacts with sources and javadoc, and deploy them into a Maven repository."""
    repository = dist / "maven"
    shutil.rmtree(repository, ignore_errors=True)
    command = ["-B", "--no-transfer-progress", "-DskipTests", f"-Drevision={version}"]
    call("mvn", *command, f"-DaltDeploymentRepository=kits::{repository.as_uri()}", "deploy", cwd=kit)
    (group,) = re.findall(r"^  <groupId>(.+)</groupId>$", (kit / "pom.xml").read_text(), re.MULTILINE)
    for artefact in ("kproxy-junit", "kproxy-testcontainers"):
        folder = repository / group.replace(".", "/") / artefact / version
        for end in (".jar", "-sources.jar", "-javadoc.jar", ".pom"):
            if not (folder / f"{artefact}-{version}{end}").is_file():
                raise PackageError(f"expected {artefact}-{version}{end}, got none (at {folder})")
        if "${" in (text := (folder / f"{artefact}-{version}.pom").read_text()):
            raise PackageError(f"expected values, got variables (at {artefact}-{version}.pom): {text}")
    shutil.make_archive(str(dist / f"kproxy-java-{version}"), "zip", repository)


def package_go(kit: Path, dist: Path, version: str) -> None:
    """Check the example with the module from a proxy's folder, as a project that requires a tagged version."""
    work = kit / "dist"
    shutil.rmtree(work, ignore_errors=True)
    path = go_module(kit)
    tagged = write_go_proxy(kit, work / "proxy", path)
    shutil.copytree(kit / "example", work / "example")
    for source in (work / "example").glob("*"):
        text = source.read_text().replace(f'"{declared_module(kit)}"', f'"{path}"')
        if source.name == "go.mod":
            text = re.sub(r"^replace .*$", "", text, flags=re.MULTILINE)
            text = re.sub(rf"\b{re.escape(declared_module(kit))} v\S+", f"{path} {tagged}", text)
        source.write_text(text)
    proxies = f"{(work / 'proxy').as_uri()},{os.environ.get('GOPROXY') or 'https://proxy.golang.org'}"
    environment = {"GOPROXY": proxies, "GONOSUMDB": path, "GOFLAGS": "-mod=mod -buildvcs=false"}
    call("go", "vet", "./...", cwd=work / "example", **environment)


def declared_module(kit: Path) -> str:
    """Return the path in the first line of go.mod."""
    return (kit / "go.mod").read_text().split()[1]


def go_module(kit: Path) -> str:
    """Return the path of the Go module: that of go.mod, or one with a placeholder host."""
    declared = declared_module(kit)
    return declared if "." in declared.partition("/")[0] else f"{PLACEHOLDER_HOST}/clients/go"


def write_go_proxy(kit: Path, proxy: Path, path: str) -> str:
    """Write the module into a folder of a module proxy, and return its version. The version depends on the content,
    because Go caches each version forever."""
    texts = {name: (kit / name).read_text() for name in GO_FILES if (kit / name).is_file()}
    declared = declared_module(kit)
    texts["go.mod"] = texts["go.mod"].replace(declared, path)
    texts["kproxykit_test.go"] = texts["kproxykit_test.go"].replace(f'"{declared}"', f'"{path}"')
    content = hashlib.sha256("".join(texts.values()).encode()).hexdigest()[:12]
    version = f"v0.0.0-20000101000000-{content}"
    folder = proxy / path / "@v"
    folder.mkdir(parents=True)
    (folder / f"{version}.info").write_text(json.dumps({"Version": version, "Time": "2000-01-01T00:00:00Z"}))
    (folder / f"{version}.mod").write_text(texts["go.mod"])
    with zipfile.ZipFile(folder / f"{version}.zip", "w") as archive:
        for name, text in texts.items():
            archive.writestr(f"{path}@{version}/{name}", text)
    return version


def package_typescript(kit: Path, dist: Path, version: str) -> None:
    """Pack the npm package, and compile a test of a project that has it installed."""
    name = json.loads((kit / "package.json").read_text())["name"]
    call("npm", *INSTALL, cwd=kit)
    call("npm", "version", "--no-git-tag-version", "--allow-same-version", version, cwd=kit)
    call("npm", "pack", "--pack-destination", dist, cwd=kit)
    project = kit / "dist" / "project"
    shutil.rmtree(project, ignore_errors=True)
    project.mkdir(parents=True)
    (project / "package.json").write_text('{"private": true, "type": "module"}')
    test = (kit / "test" / "retries.test.ts").read_text().replace("'../src/kproxy.js'", f"'{name}'")
    (project / "retries.test.ts").write_text(test)
    options = json.loads((kit / "tsconfig.json").read_text())["compilerOptions"]
    (project / "tsconfig.json").write_text(json.dumps({"compilerOptions": {**options, "noEmit": True}}))
    package = dist / f"{name}-{version}.tgz"
    call("npm", *INSTALL, package, cwd=project)
    call("node", kit / "node_modules" / "typescript" / "bin" / "tsc", "-p", project, cwd=project)
    call("node", "-e", f"import('{name}').then(kit => kit.Kproxy.start)", cwd=project)


def package_python(kit: Path, dist: Path, version: str) -> None:
    """Build the wheel."""
    words = ("-m", "pip", "wheel", "-q", "--disable-pip-version-check", "--no-deps", "--no-build-isolation")
    call(sys.executable, *words, "-w", dist, ".", cwd=kit, SETUPTOOLS_SCM_PRETEND_VERSION=version)
    wheel = dist / f"kproxy_testcontainers-{version}-py3-none-any.whl"
    information = f"kproxy_testcontainers-{version}.dist-info"
    with zipfile.ZipFile(wheel) as archive:
        files = set(archive.namelist())
        metadata = Parser().parsestr(archive.read(f"{information}/METADATA").decode())
    if not {"kproxy_testcontainers.py", f"{information}/licenses/LICENSE"} <= files or metadata["Version"] != version:
        raise PackageError(f"expected the module, the license and version {version}, got {sorted(files)} (at {wheel})")


PACKAGERS: dict[str, Callable[[Path, Path, str], None]] = {
    "java": package_java,
    "go": package_go,
    "typescript": package_typescript,
    "python": package_python,
}
