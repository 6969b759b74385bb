"""The Dockerfile's steps, one by one in a folder: there is no container engine where these tests run.

What its first stage runs is run on a copy of what .dockerignore lets through, with the image's /opt/kproxy in that
folder; then its command and health check are run as the image's user would: nobody, who may write nothing.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from kproxy.admin.webhook.annotations import SidecarOptions
from kproxy.admin.webhook.injection import mounts
from kproxy.testing.process import Child, free_port
from tests.support.fake_broker import FakeBroker

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "Dockerfile").read_text()
USER = 10001


def instructions() -> list[tuple[str, str]]:
    """(instruction, rest), continued lines joined."""
    joined = re.sub(r"\\\n\s*", " ", re.sub(r"^#.*\n", "", TEXT, flags=re.MULTILINE))
    return [(word, rest) for word, rest in (line.split(" ", 1) for line in joined.splitlines() if line.strip())]


def let_through(path: str) -> bool:
    """Whether .dockerignore lets a file of the repository into the build."""
    given = False
    for line in (ROOT / ".dockerignore").read_text().split():
        pattern, keeps = line.removeprefix("!"), line.startswith("!")
        inside = pattern.removeprefix("**/")
        anywhere = pattern.startswith("**/") and any(fnmatch.fnmatch(part, inside) for part in path.split("/"))
        if anywhere or pattern in ("*", path) or path.startswith(f"{pattern}/"):
            given = keeps
    return given


def stages() -> list[list[tuple[str, str]]]:
    """The instructions in front of the first FROM, then those of each stage, its FROM included."""
    found: list[list[tuple[str, str]]] = [[]]
    for name, rest in instructions():
        if name == "FROM":
            found.append([])
        found[-1].append((name, rest))
    return found


def defaults() -> dict[str, str]:
    """Default values of build arguments."""
    return dict(rest.split("=", 1) for name, rest in instructions() if name == "ARG" and "=" in rest)


DIGEST = "sha256:" + "0" * 64


@pytest.mark.parametrize(
    ("version", "image", "code"),
    [
        ("0.0.0", "python:3.11-slim-bookworm", 0),
        ("1.2.3", f"python@{DIGEST}", 0),
        ("1.2.3", f"mirror.example.com/python:3.11@{DIGEST}", 0),
        ("1.2.3", "python:3.11-slim-bookworm", 1),
        ("1.2.3", "python@sha256:0", 1),
        ("10.0.0", "python:3.11-slim-bookworm", 1),
    ],
)
def test_dockerfile_version_requires_base_image_digest(version: str, image: str, code: int) -> None:
    """The first command of the build fails without one."""
    command = next(rest for name, rest in stages()[1] if name == "RUN")
    done = subprocess.run(["sh", "-euc", command], env={"VERSION": version, "PYTHON_IMAGE": image},
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == code, done.stderr
    assert ("expected a PYTHON_IMAGE with @sha256:DIGEST" in done.stderr) is bool(code)


def test_dockerfile_stages_have_the_same_base_argument() -> None:
    """No stage names an image of its own, whose content could change."""
    assert {stage[0][1].split()[0] for stage in stages()[1:]} == {"${PYTHON_IMAGE}"}
    assert stages()[0] == [("ARG", "PYTHON_IMAGE=python:3.11-slim-bookworm")]


def test_dockerfile_working_directory_is_not_writable() -> None:
    """It is root's, in no volume, and Python does not import from it."""
    last = stages()[-1]
    folder = dict(last)["WORKDIR"]
    assert not f"{folder}/".startswith(f"{dict(last)['VOLUME']}/")
    made = [one for name, rest in last if name == "RUN" for one in rest.split("&&") if folder in one.split()]
    assert [one.split() for one in made] == [["install", "-d", folder]]
    assert "PYTHONSAFEPATH=1" in dict(last)["ENV"].split()


def test_manifests_mount_working_directory_read_only() -> None:
    """Each pod of kproxy: the chart's, the manifests', the overlays' and the webhook's keep the image's directory."""
    folder = dict(stages()[-1])["WORKDIR"]
    files = [path for path in (ROOT / "deploy").rglob("*.yaml") if "args: [run, --config" in path.read_text()]
    assert len(files) >= 4
    for path in files:
        assert f"mountPath: {folder}, readOnly: true" in path.read_text(), path
        assert "workingDir" not in path.read_text(), path
    sidecar = {one["mountPath"]: one for one in mounts(SidecarOptions("kproxy", files="1Gi"))}
    assert sidecar[folder]["readOnly"] is True
    compose = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())["services"]["kproxy"]
    assert "working_dir" not in compose
    assert all(one.endswith(":ro") for one in compose["volumes"] if f":{folder}" in one)


def test_what_is_copied_is_let_through() -> None:
    """Everything that COPY names of the repository, and nothing of tests, captures or secrets."""
    sources = [word for name, rest in instructions() if name == "COPY" and "--from" not in rest
               for word in rest.split()[:-1]]  # fmt: skip
    assert "kproxy" in sources
    for source in sources:
        assert (ROOT / source).exists(), source
        assert let_through(source), source
    for other in (".git/config", "tests/conftest.py", "audit/a.ndjson", ".venv/bin/python", "kproxy/__pycache__/a.pyc"):
        assert not let_through(other), other


def test_what_runs_is_not_root_and_has_a_health_check() -> None:
    """The image's user is a number, which Kubernetes can tell from root; its command and check are kproxy's own."""
    last = dict(instructions())
    assert last["USER"] == f"{USER}:{USER}"
    assert json.loads(last["ENTRYPOINT"]) == ["kproxy"]
    assert json.loads(last["CMD"]) == ["run", "--config", "/etc/kproxy/kproxy.yaml"]
    assert json.loads(last["HEALTHCHECK"].split("CMD ", 1)[1]) == ["kproxy", "ready"]


def test_containers_that_are_shown_advertise_what_clients_outside_can_reach() -> None:
    """Each `docker run` and the compose file: a host of its own choice, on ports that are published."""
    texts = [(ROOT / name).read_text().replace("\\\n", " ") for name in ("Dockerfile", "docs/deploy.md")]
    shown = re.findall(r"docker run -p (\d+)-(\d+):\1-\2 .*? --advertise localhost:(\d+)-(\d+)", "\n".join(texts))
    assert len(shown) == sum(text.count("docker run") for text in texts) == 2
    compose = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())["services"]
    (published,) = compose["kproxy"]["ports"]
    advertise = yaml.safe_load((ROOT / "deploy" / "compose.kproxy.yaml").read_text())["listeners"][0]["advertise"]
    assert advertise["host"] == "localhost"
    shown.append((*published.split(":")[0].split("-"), *advertise["ports"].split("-")))
    for first, last, first_node, last_node in shown:
        assert int(first) < int(first_node) <= int(last_node) <= int(last)


def test_the_broker_of_compose_can_keep_its_own_topics() -> None:
    """One broker cannot keep three replicas: groups, transactions and share groups would never work."""
    environment = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())["services"]["kafka"]["environment"]
    for topic in ("OFFSETS_TOPIC", "TRANSACTION_STATE_LOG", "SHARE_COORDINATOR_STATE_TOPIC"):
        assert environment[f"KAFKA_{topic}_REPLICATION_FACTOR"] == 1
    for topic in ("TRANSACTION_STATE_LOG", "SHARE_COORDINATOR_STATE_TOPIC"):
        assert environment[f"KAFKA_{topic}_MIN_ISR"] == 1


@pytest.mark.deep
@pytest.mark.timeout(600)
def test_the_steps_give_a_kproxy_that_serves_and_is_healthy(tmp_path: Path) -> None:
    """As nobody, in a folder that cannot be written; as whoever runs the tests where their Python is not for others."""
    tmp_path.chmod(0o755)
    source, image = tmp_path / "src", tmp_path / "opt" / "kproxy"
    source.mkdir()
    build = stages()[1]
    arguments = defaults()
    for name, rest in build:
        if name == "COPY":
            *froms, to = rest.split()
            for one in froms:
                target = source / (to if len(froms) == 1 else one)
                target.parent.mkdir(parents=True, exist_ok=True)
                copy = shutil.copytree if (ROOT / one).is_dir() else shutil.copy
                copy(ROOT / one, target)
        elif name == "RUN":
            command = rest.replace("/opt/kproxy", str(image)).replace("python -m venv", f"{sys.executable} -m venv")
            subprocess.run(["bash", "-euc", command], cwd=source, env={**os.environ, **arguments}, check=True)
    assert not list(image.glob("bin/pip*"))

    with FakeBroker() as broker:
        admin = f"127.0.0.1:{free_port()}"
        words = ["run", "--listen", f"127.0.0.1:{free_port()}", "--upstream", broker.address, "--admin", admin]
        nobody = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--no-new-privs"]
        able = subprocess.run([*nobody, "env", image / "bin" / "python", "-c", ""], capture_output=True, check=False)
        nobody = nobody if able.returncode == 0 else []
        command = [*nobody, "env", "-C", "/", f"PATH={image}/bin:/usr/bin:/bin", "kproxy"]
        with Child([*command, *words], tmp_path / "log", cwd=tmp_path) as child:
            healthy = [*command[:-1], f"KPROXY_ADMIN=http://{admin}", "kproxy", "ready"]
            child.wait_until(lambda: subprocess.run(healthy, check=False).returncode == 0, 60, "kproxy ready")
