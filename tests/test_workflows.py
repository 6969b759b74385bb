"""Workflows, the action and the hooks: their rules, their published schemas, and the commands of their verbs.

No workflow can run here. The verbs of the Makefile run instead, as far as they need no container engine and no login.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.howto import blocks
from tests.support.built_programs import find_program

ROOT = Path(__file__).parent.parent
GITHUB = ROOT / ".github"
WORKFLOWS = {path.name: path for path in sorted((GITHUB / "workflows").iterdir())}
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
PAGE = ROOT / "docs" / "ci.md"
MAKEFILE = (ROOT / "Makefile").read_text()
PYTHON = str(Path(sys.base_prefix, "bin", f"python{sys.version_info[0]}.{sys.version_info[1]}"))
"""Without the packages of the tests."""
INSTALLED = ("-o", ".venv/.ready-for-release")  # make installs nothing
SCHEMAS = {
    "github-workflows": sorted(WORKFLOWS.values()),
    "github-actions": [ROOT / "action.yml"],
    "github-issue-forms": sorted((GITHUB / "ISSUE_TEMPLATE").iterdir()),
    "dependabot": [GITHUB / "dependabot.yml"],
}
WRITES = {  # permissions beyond `contents: read`, and their reasons
    ("release.yml", "image"): {
        "packages": "pushes image and chart", "id-token": "signs", "attestations": "attests the image",
    },
    ("release.yml", "publish"): {"id-token": "trusted publishing"},
    ("release.yml", "release"): {
        "contents": "creates the release", "id-token": "signs", "attestations": "attests files",
        "actions": "starts docs.yml",
    },
    ("docs.yml", "deploy"): {"pages": "deploys", "id-token": "deploys"},
}  # fmt: skip


def read(name: str) -> Any:
    return yaml.safe_load(WORKFLOWS[name].read_text())


JOBS = [(file, name, job) for file in WORKFLOWS for name, job in read(file)["jobs"].items()]
STEPS = [(file, name, step) for file, name, job in JOBS for step in job["steps"]]


def verbs() -> set[str]:
    """Verbs of the Makefile with a recipe."""
    phony = re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)[0].split()
    return {verb for verb in phony if re.search(rf"^{verb}:", MAKEFILE, re.MULTILINE)}


def test_workflow_steps_run_make_verbs_only() -> None:
    runs = [(file, name, step["run"]) for file, name, step in STEPS if "run" in step]

    assert {file for file, _, _ in runs} == WORKFLOWS.keys()
    assert [one for one in runs if one[2].removeprefix("make ") not in verbs() or not one[2].startswith("make ")] == []
    assert [step for _, _, step in STEPS if "shell" in step or "if" in step] == []


def test_actions_are_pinned_by_commit_with_version() -> None:
    """Each action at one commit in all files, with the version of that commit as a comment."""
    pins: dict[str, set[tuple[str, str]]] = {}
    own = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"].get("kproxy", {}).get("home", "none")
    for path in (*WORKFLOWS.values(), ROOT / "action.yml", PAGE):
        for used in re.findall(r"\buses: (?!\./)(.*)$", path.read_text(), re.MULTILINE):
            if used.partition("@")[0] == own.partition("//")[2].partition("/")[2]:
                continue  # this repository's action, on its page
            pin = re.fullmatch(r"([\w-]+/[\w./-]+)@([0-9a-f]{40}) # (v\d+\.\d+\.\d+)", used)
            assert pin is not None, f"{path.name}: {used}"
            pins.setdefault(pin[1], set()).add((pin[2], pin[3]))

    assert len(pins) > 8
    assert {action: found for action, found in pins.items() if len(found) != 1} == {}


def test_permissions_of_jobs_are_minimal() -> None:
    """None for the workflow; a job reads the repository, and writes as the table says."""
    for file in WORKFLOWS:
        assert read(file)["permissions"] == {}
        assert "concurrency" in read(file)
    for file, name, job in JOBS:
        writes = dict.fromkeys(WRITES.get((file, name), {}), "write")
        reads = {"contents": "read"} if any("checkout" in step.get("uses", "") for step in job["steps"]) else {}
        assert (file, name, job["permissions"]) == (file, name, {**reads, **writes})
        assert job["timeout-minutes"] <= 90
        assert name == "quick" or "continue-on-error" not in job


def test_workflows_have_no_secret_but_their_token() -> None:
    for path in (*WORKFLOWS.values(), ROOT / "action.yml"):
        text = path.read_text()
        assert not re.search(r"secrets|pull_request_target|workflow_run|self-hosted", text), path
        used = set(re.findall(r"\$\{\{ *([\w.-]+)", text))
        assert {one for one in used if not one.startswith(("matrix.", "steps.", "inputs."))} <= {
            "github.token", "github.ref", "github.ref_name", "github.repository", "github.actor", "vars.IMAGE_REGISTRY",
        }  # fmt: skip
    for file, name, step in STEPS:
        assert "${{" not in step.get("run", ""), (file, name)
        if "actions/checkout@" in step.get("uses", ""):
            assert step["with"]["persist-credentials"] is False, (file, name)


def test_only_a_version_tag_releases() -> None:
    assert read("release.yml")[True] == {"push": {"tags": ["v[0-9]+.[0-9]+.[0-9]+"]}}  # YAML 1.1 reads `on` as true
    assert [file for file, _, job in JOBS if "environment" in job] == ["docs.yml", "release.yml"]
    assert {name for file, name, _ in JOBS if (file, name) in WRITES and file == "ci.yml"} == set()


def test_matrix_has_the_pythons_of_nox_and_of_the_classifiers() -> None:
    pythons = re.findall(r"3\.\d+", re.findall(r"^PYTHONS = .*$", (ROOT / "noxfile.py").read_text(), re.MULTILINE)[0])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    classified = [one.rpartition(" ")[2] for one in project["classifiers"] if re.search(r":: 3\.\d+$", one)]

    for file, job in (("ci.yml", "quick"), ("release.yml", "pyz")):
        matrix = read(file)["jobs"][job]["strategy"]["matrix"]
        assert matrix["python"] == pythons
        assert {one["python"] for one in matrix.get("include", ())} <= set(pythons)
    systems = {one["os"].split("-")[0] for one in read("ci.yml")["jobs"]["quick"]["strategy"]["matrix"]["include"]}
    assert systems == {"macos", "windows"}
    assert classified == pythons


def commands(*verbs: str, **variables: str) -> list[str]:
    """Return the commands of verbs, without running them."""
    words = ["make", "-n", *INSTALLED, *verbs, *(f"{name}={text}" for name, text in variables.items())]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.replace("\\\n", " ").splitlines()


@pytest.mark.process
def test_release_image_has_sbom_provenance_and_signature() -> None:
    """By its digest; the tag of the version and the base image by its digest; names of images are in lower case."""
    steps = [step.get("run", step.get("uses", "").split("@")[0]) for _, name, step in STEPS if name == "image"]
    order = ["make sbom", "make image-push", "make image-sign", "actions/attest", "make chart", "make chart-push"]
    assert [step for step in steps if step in order] == order
    told = {"VERSION": "v1.2.3", "IMAGE": "ghcr.io/Acme/Proxy", "DIST": "out"}
    push, sign, chart = (" ".join(commands(verb, **told)) for verb in ("image-push", "image-sign", "chart-push"))

    for option in ("--platform linux/amd64,linux/arm64", "--provenance mode=max", "--sbom true", "--push",
                   "--build-arg 'VERSION=1.2.3'", "--tag 'ghcr.io/acme/proxy:1.2.3'"):  # fmt: skip
        assert option in push
    base = re.findall(r"ARG PYTHON_IMAGE=(\S+)", (ROOT / "Dockerfile").read_text())[0]
    assert f"imagetools inspect {base} --format" in push and f'"PYTHON_IMAGE={base}@$base"' in push
    digest = "\"ghcr.io/acme/proxy@$(cat 'out/image.digest')\""
    assert f"cosign sign --yes {digest}" in sign
    assert f"cosign attest --yes --type cyclonedx --predicate 'out/kproxy.cdx.json' {digest}" in sign
    assert "helm push 'out/kproxy-1.2.3.tgz' 'oci://ghcr.io/acme/proxy/charts'" in chart
    assert 'cosign sign --yes "ghcr.io/acme/proxy/charts/kproxy@$(sed' in chart


@pytest.mark.process
def test_verbs_that_need_an_engine_or_a_login_have_their_commands() -> None:
    told = {"VERSION": "v1.2.3", "DIST": "out"}
    expected = {
        "image": ["docker build -t 'kproxy:dev' ."],
        "image-check": ["docker run --detach --name kproxy-check 'kproxy:dev' mock --admin 127.0.0.1:9190"],
        "release": ["gh release create 'v1.2.3' --verify-tag", "--notes-file 'out/notes.md'", "'out'/*.pyz",
                    "-f 'ref=refs/tags/clients/go/v1.2.3'"],
        "publish": ["test -f 'out/kproxy_kafka-1.2.3-py3-none-any.whl'", "pypi_attestations sign",
                    "twine upload --non-interactive --attestations"],
        "chart-index": ["gh release download \"$tag\" --pattern 'kproxy-[0-9]*.tgz'", "helm repo index site/charts",
                        "cp deploy/helm/artifacthub-repo.yml site/charts"],
        "site": ["gh workflow run docs.yml --ref main"],
    }  # fmt: skip
    for verb, parts in expected.items():
        text = " ".join(commands(verb, **told))
        assert [part for part in parts if part not in text] == [], verb


def make(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run verbs in the repository with the packages of this Python."""
    command = ["make", "-s", *INSTALLED, *words, f"BIN={Path(sys.executable).parent}"]
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )


@pytest.mark.process
def test_make_variables_with_code_of_a_shell_are_rejected(tmp_path: Path) -> None:
    """On the command line and in the environment, before any verb runs."""
    made = tmp_path / "made"
    codes = {"'": f"a'; touch {made}; '", '"': f'a"; touch {made}; "', "`": f"a`touch {made}`",
             "$": f"$(shell touch {made})", "\\": "a\\nb"}  # fmt: skip
    for number, (char, text) in enumerate(codes.items()):
        name = ("URL", "VERSION", "IMAGE", "DIST", "DASHBOARD")[number]
        for done in (make("-n", "release", f"{name}={text}"), make("-n", "release", **{name: text})):
            assert done.returncode == 2 and f"expected {name} without {char}, got {text}" in done.stderr, done.stderr
    assert not made.exists()


@pytest.mark.process
def test_release_notes_are_the_section_of_the_version(tmp_path: Path) -> None:
    """With links to the tag, and an error for a version without changes."""
    server = {"GITHUB_SERVER_URL": "https://git.example", "GITHUB_REPOSITORY": "acme/proxy"}
    done = make("release-notes", "VERSION=Unreleased", f"DIST={tmp_path}", **server)
    notes = (tmp_path / "notes.md").read_text()

    assert (done.returncode, done.stderr) == (0, "")
    assert "## " not in notes.replace("### ", "") and "- **Faults.**" in notes
    assert set(re.findall(r"\]\(([^)]*?)docs/", notes)) == {"https://git.example/acme/proxy/blob/vUnreleased/"}
    missing = make("release-notes", "VERSION=v98.7.6", f"DIST={tmp_path}")
    assert missing.returncode != 0
    assert "expected a section [98.7.6] with changes, got none (at CHANGELOG.md)" in missing.stderr


@pytest.mark.process
@pytest.mark.tools("helm")
def test_chart_has_the_version_of_the_tag(tmp_path: Path) -> None:
    done = make("chart", "VERSION=v98.7.6", f"DIST={tmp_path}", f"HELM={find_program('helm')}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["kproxy-98.7.6.tgz"]
    with tarfile.open(tmp_path / "kproxy-98.7.6.tgz") as packed:
        file = packed.extractfile("kproxy/Chart.yaml")
        assert file is not None and "kproxy/README.md" in packed.getnames()
        chart = yaml.safe_load(file.read())
    assert yaml.safe_load(chart["annotations"]["artifacthub.io/images"])[0]["image"].endswith(":98.7.6")


@pytest.mark.process
@pytest.mark.deep
@pytest.mark.tools("pyproject-build")
@pytest.mark.timeout(900)
def test_wheel_and_source_distribution_are_built(tmp_path: Path) -> None:
    done = make("wheel", f"DIST={tmp_path}", SETUPTOOLS_SCM_PRETEND_VERSION="98.7.6")
    assert done.returncode == 0, done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {
        "kproxy_kafka-98.7.6-py3-none-any.whl", "kproxy_kafka-98.7.6.tar.gz",
    }  # fmt: skip


@pytest.mark.process
@pytest.mark.deep
@pytest.mark.tools("shiv")
@pytest.mark.timeout(900)
def test_pyz_runs_without_an_installation(tmp_path: Path) -> None:
    """The file alone serves a mock cluster behind kproxy, and sends records through it."""
    done = make("pyz", f"DIST={tmp_path}")
    assert done.returncode == 0, done.stderr
    (file,) = tmp_path.glob("kproxy-*-cp3*.pyz")
    environment = {"PATH": os.environ["PATH"], "SHIV_ROOT": str(tmp_path / "unpacked"), "HOME": str(tmp_path)}

    def run(*words: str) -> str:
        command = [PYTHON, "-I", str(file), *words]
        ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    assert re.fullmatch(r"kproxy \d+\.\d+\.\d+\S*\n", run("--version"))
    assert "100" in run("demo", "--records", "100")


@pytest.mark.process
@pytest.mark.deep
@pytest.mark.tools("cyclonedx-py")
@pytest.mark.timeout(900)
def test_sbom_has_the_pinned_packages_of_the_image(tmp_path: Path) -> None:
    done = make("sbom", "VERSION=98.7.6", f"DIST={tmp_path}")
    assert done.returncode == 0, done.stdout + done.stderr
    bom = yaml.safe_load((tmp_path / "kproxy.cdx.json").read_text())
    found = {one["name"].lower().replace("_", "-"): one["version"] for one in bom["components"]}
    lines = (ROOT / "constraints.txt").read_text().lower().replace("_", "-").splitlines()
    pinned = dict(line.split("==") for line in lines if "==" in line)

    assert bom["bomFormat"] == "CycloneDX"
    assert {"trio", "pydantic", "confluent-kafka"} <= found.keys()
    assert found.pop("kproxy-kafka", "98.7.6") == "98.7.6"
    assert {name: version for name, version in found.items() if pinned.get(name) != version} == {}
    assert not {"pip", "setuptools", "pytest"} & found.keys()
    assert list(tmp_path.iterdir()) == [tmp_path / "kproxy.cdx.json"]


# ---- published schemas and linters


@pytest.mark.process
@pytest.mark.tools("check-jsonschema")
def test_project_files_fit_their_published_schemas(tmp_path: Path) -> None:
    """In one process. A workflow with a wrong key does not."""
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(WORKFLOWS["docs.yml"].read_text().replace("permissions:", "permission:"))
    runs = [["--builtin-schema", f"vendor.{schema}", *map(str, files)] for schema, files in SCHEMAS.items()]
    runs.append(["--builtin-schema", "vendor.github-workflows", str(wrong)])
    program = "import sys; from check_jsonschema import main\n"
    program += f"sys.exit(repr([main(words, standalone_mode=False) for words in {runs!r}]))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1:] == ["[0, 0, 0, 0, 1]"], done.stdout[:2000] + done.stderr


@pytest.mark.process
@pytest.mark.tools("actionlint")
def test_actionlint_finds_nothing() -> None:
    words = [find_program("actionlint"), "-shellcheck=", "-pyflakes=", *map(str, WORKFLOWS.values())]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


@pytest.mark.process
@pytest.mark.tools("zizmor")
def test_zizmor_finds_nothing_offline() -> None:
    words = [find_program("zizmor"), "-q", "--offline", "--no-config", "--format", "plain", ".github", "action.yml"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_issue_forms_ask_for_version_and_capture() -> None:
    forms = {path.stem: yaml.safe_load(path.read_text()) for path in (GITHUB / "ISSUE_TEMPLATE").iterdir()}
    assert forms.keys() == {"bug", "rule", "client"}
    for name, form in forms.items():
        fields = {one["id"]: one["attributes"] for one in form["body"] if "id" in one}
        assert "kproxy --version" in fields["version"]["description"], name
        required = {one["id"] for one in form["body"] if one.get("validations", {}).get("required")}
        assert "version" in required
        assert name != "bug" or "kproxy capture" in fields["capture"]["description"]


@pytest.mark.process
@pytest.mark.tools("check-jsonschema", "actionlint")
def test_examples_of_the_page_are_valid(tmp_path: Path) -> None:
    """The workflow fits its schema and the action's inputs; hooks and version are those of the repository."""
    examples = {text.partition("\n")[0]: text for language, text in blocks("ci.md") if language == "yaml"}
    workflow, hooks = examples["# .github/workflows/kproxy.yml"], examples["# .pre-commit-config.yaml"]
    file = tmp_path / ".github" / "workflows" / "kproxy.yml"
    file.parent.mkdir(parents=True)
    file.write_text(workflow)
    (tmp_path / "kproxy").mkdir()
    (tmp_path / "kproxy" / "action.yml").write_text((ROOT / "action.yml").read_text())
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)  # where actionlint finds local actions
    schema = [find_program("check-jsonschema"), "--builtin-schema", "vendor.github-workflows", file]
    for words in (schema, [find_program("actionlint"), "-shellcheck=", "-pyflakes=", file]):
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout
    table = re.findall(r"^\| `([\w-]+)` \| (.*?) \|", PAGE.read_text(), re.MULTILINE)
    inputs = {name: one.get("default", "**required**") or "none" for name, one in ACTION["inputs"].items()}
    assert {name: default.strip("`") for name, default in table if name in inputs} == inputs

    (repository,) = yaml.safe_load(hooks)["repos"]
    there = [one["id"] for one in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())]
    assert [one["id"] for one in repository["hooks"]] == there
    chart = yaml.safe_load((ROOT / "deploy/helm/kproxy/Chart.yaml").read_text())
    assert repository["rev"] == f"v{chart['version']}"


def test_page_verifies_what_the_release_signs() -> None:
    """The identity is the workflow at a tag that it accepts; the SBOM has the type that `make image-sign` attaches."""
    page = (ROOT / "docs" / "install.md").read_text()
    identities = set(re.findall(r'--certificate-identity "\$URL/(\S+)@refs/tags/(\S+)"', page))
    assert [(ROOT / file).exists() for file, _ in identities] == [True]
    assert re.fullmatch(
        read("release.yml")[True]["push"]["tags"][0].replace(".", r"\."), *[tag for _, tag in identities]
    )
    types = [
        set(re.findall(r"cosign (?:verify-attestation|attest) .*?--type (\w+)", text)) for text in (page, MAKEFILE)
    ]
    assert types == [{"cyclonedx"}, {"cyclonedx"}]
    assert "gh attestation verify kproxy-" in page


# ---- the action and the hooks


def step(name: str) -> Any:
    (found,) = [one for one in ACTION["runs"]["steps"] if one.get("id") == name]
    return found


def run_action(folder: Path, command: str, arguments: str = "") -> tuple[int, str, Path | None]:
    """Run the action's second step as a runner does. Return exit code, output and SARIF file."""
    program = folder / "kproxy"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m kproxy "$@"\n')
    program.chmod(0o755)
    output = folder / "output"
    output.write_text("")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "KPROXY": str(program), "COMMAND": command, "ARGS": arguments,
                   "RUNNER_TEMP": str(folder), "GITHUB_OUTPUT": str(output),
                   "GITHUB_STEP_SUMMARY": str(folder / "summary")}  # fmt: skip
    words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step("run")["run"]]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    sarif = re.fullmatch(r"sarif=(.*)\n", output.read_text())
    return done.returncode, done.stdout + done.stderr, Path(sarif[1]) if sarif else None


def test_action_passes_inputs_by_environment_only() -> None:
    """No input is text of a script. Outputs and inputs are those of the steps."""
    for one in ACTION["runs"]["steps"]:
        assert "${{" not in one["run"]
        assert one["shell"] == "bash"
    used = set(re.findall(r"inputs\.([\w-]+)", (ROOT / "action.yml").read_text()))
    assert used == ACTION["inputs"].keys() == {"command", "args", "working-directory", "python"}
    assert ACTION["outputs"].keys() == {"sarif"}


@pytest.mark.process
@pytest.mark.parametrize(
    ("command", "arguments", "code", "printed"),
    [
        ("check", "rules/", 1, "::error file=rules/shop.yaml,line=1,"),
        ("test", "rules/", 1, ""),
        ("verify", "missing.pcapng", 2, "missing.pcapng"),
        ("explore", "--help", 0, "Usage: kproxy explore"),
        ("run", "--help", 2, "::error::expected command check, test, verify or explore, got run\n"),
        ("a\n::set-env name=b::c", "", 2, "verify or explore, got $'a\\n::set-env name=b::c'\n"),
        ("check", "'rules/a good rule.yaml' \"--strict", 2, "::error::expected args with closed quotes, got"),
        (
            "check",
            "'rules/a good rule.yaml'\n$(touch${IFS}injected) ;touch${IFS}injected",
            1,
            "file=;touch${IFS}injected,",
        ),
    ],
)
def test_action_runs_one_command(tmp_path: Path, command: str, arguments: str, code: int, printed: str) -> None:
    """With its exit code, annotations and a SARIF file, which explore lacks. Arguments are words, not a script."""
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "shop.yaml").write_text("rules: [{name: slow, kind: delay, dely: 1ms}]\n")
    (rules / "a good rule.yaml").write_text("rules: [{name: slow, kind: delay, delay: 1ms}]\n")

    found, output, sarif = run_action(tmp_path, command, arguments)

    assert (found, printed in output) == (code, True), output
    assert (sarif is None) == (command == "explore" or code == 2)
    assert sarif is None or yaml.safe_load(sarif.read_text())["version"] == "2.1.0"
    assert not (tmp_path / "injected").exists()


@pytest.mark.process
@pytest.mark.deep
@pytest.mark.timeout(900)
def test_action_installs_kproxy_from_its_checkout(tmp_path: Path) -> None:
    """In an environment of its own. Output `kproxy` is the path of the command."""
    output = tmp_path / "output"
    environment = {**os.environ, "PYTHON": PYTHON, "RUNNER_OS": "Linux", "RUNNER_TEMP": str(tmp_path),
                   "GITHUB_ACTION_PATH": str(ROOT), "GITHUB_OUTPUT": str(output)}  # fmt: skip
    words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step("install")["run"]]
    subprocess.run(words, cwd=tmp_path, env=environment, check=True)
    program = output.read_text().strip().removeprefix("kproxy=")
    done = subprocess.run([program, "--version"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert re.fullmatch(r"kproxy \d+\.\d+\.\d+\S*\n", done.stdout)


@pytest.mark.process
@pytest.mark.deep
@pytest.mark.tools("pre-commit")
@pytest.mark.timeout(900)
def test_hooks_are_installed_and_run_by_pre_commit(tmp_path: Path) -> None:
    """In an environment of their own, on a rule file with an error and on its test."""
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "shop.yaml").write_text("rules: [{name: slow, kind: delay, dely: 1ms}]\n")
    (rules / "shop.test.yaml").write_text("tests: []\n")
    environment = {**os.environ, "PRE_COMMIT_HOME": str(tmp_path / "cache"), "GIT_CONFIG_GLOBAL": "/dev/null"}
    subprocess.run(["git", "init", "-q", tmp_path], env=environment, check=True)
    subprocess.run(["git", "add", "rules"], cwd=tmp_path, env=environment, check=True)
    words = [find_program("pre-commit"), "try-repo", ROOT, "kproxy-check", "--all-files"]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    assert done.returncode == 1, done.stderr
    assert "rules/shop.yaml:1:" in done.stdout and "dely" in done.stdout


@pytest.mark.parametrize(
    ("name", "hooks"),
    [
        ("rules/shop.yaml", {"kproxy-check"}),
        ("deploy/rules/a/shop.yml", {"kproxy-check"}),
        ("kproxy.yaml", {"kproxy-check"}),
        ("rules/shop.test.yaml", {"kproxy-check", "kproxy-test"}),
        ("tests/shop.test.yml", {"kproxy-test"}),
        ("chart/values.yaml", set()),
        ("my-rules/shop.yaml", set()),
    ],
)
def test_hooks_take_the_files_of_kproxy(name: str, hooks: set[str]) -> None:
    found = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert {one["id"] for one in found if re.search(one["files"], name)} == hooks
    assert {one["entry"] for one in found} == {"kproxy check", "kproxy test"}
