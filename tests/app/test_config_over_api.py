"""Config documents over the admin API: the files that they may name, and what messages repeat of values and files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest
import trio
import yaml
from pydantic import BaseModel

from kproxy.app.config.changes import Origin
from kproxy.app.config.document import Config, _alternatives, is_secret
from kproxy.base.errors import DocumentError
from kproxy.base.named_file import PathGuard, read_named
from kproxy.rules.values.source import Source
from kproxy.testing.process import free_port
from tests.support.certificates import Authority
from tests.support.live_proxy import LiveProxy
from tests.support.wait import until

CODE = 'rules: [{name: code, kind: python, match: {api: Produce}, call: "kproxy.rules.example_hooks:many_topics_wait"}]'
HIDDEN = "SECRET-CONTENT"
PLACES: dict[str, dict[str, Any]] = {
    "rules.0": {"rules": ["{}"]},
    "captures": {"captures": "{}"},
    "state": {"state": "{}"},
    "audit.dir": {"audit": {"dir": "{}"}},
    "admin.read_token_file": {"admin": {"bind": "127.0.0.1:1", "token": "t", "read_token_file": "{}"}},
    "listeners.0.tls.cert": {"listener": {"tls": {"cert": "{}"}}},
    "listeners.0.tls.key": {"listener": {"tls": {"cert": "good", "key": "{}"}}},
    "listeners.0.tls.client_ca": {"listener": {"tls": {"cert": "good", "client_ca": "{}"}}},
    "listeners.0.sasl.users": {"listener": {"sasl": {"users": "{}"}}},
    "clusters.main.tls.ca": {"cluster": {"tls": {"ca": "{}"}}},
    "clusters.main.tls.cert": {"cluster": {"tls": {"cert": "{}"}}},
    "clusters.main.tls.key": {"cluster": {"tls": {"cert": "good", "key": "{}"}}},
    "clusters.main.sasl.token_file": {"cluster": {"sasl": {"mechanism": "OAUTHBEARER", "token_file": "{}"}}},
    "registries.main.tls.ca": {"registries": {"main": {"url": "https://a:1", "tls": {"ca": "{}"}}}},
    "registries.main.tls.cert": {"registries": {"main": {"url": "https://a:1", "tls": {"cert": "{}"}}}},
    "registries.main.tls.key": {"registries": {"main": {"url": "https://a:1", "tls": {"cert": "good", "key": "{}"}}}},
    "otlp.tls.ca": {"otlp": {"endpoint": "https://a:1", "metrics": 9, "tls": {"ca": "{}"}}},
    "otlp.tls.cert": {"otlp": {"endpoint": "https://a:1", "metrics": 9, "tls": {"cert": "{}"}}},
    "otlp.tls.key": {"otlp": {"endpoint": "https://a:1", "metrics": 9, "tls": {"cert": "good", "key": "{}"}}},
}
"""By place in the document: the setting that names a file there."""
SECRETS: dict[str, dict[str, Any]] = {
    "admin.token": {"admin": {"bind": "127.0.0.1:1", "token": "{}"}},
    "listeners.0.tls.key_password": {"listener": {"tls": {"cert": "good", "key_password": "{}"}}},
    "clusters.main.tls.key_password": {"cluster": {"tls": {"cert": "good", "key_password": "{}"}}},
    "clusters.main.sasl.password": {"cluster": {"sasl": {"mechanism": "PLAIN", "username": "u", "password": "{}"}}},
    "otlp.headers.main": {"otlp": {"endpoint": "http://a:1", "metrics": 9, "headers": {"a": "{}"}}},
    "otlp.tls.key_password": {"otlp": {"endpoint": "https://a:1", "metrics": 9,
                                       "tls": {"cert": "good", "key_password": "{}"}}},
    "registries.main.password": {"registries": {"main": {"url": "https://a:1", "username": "u", "password": "{}"}}},
    "registries.main.tls.key_password": {"registries": {"main": {"url": "https://a:1",
                                                                 "tls": {"cert": "good", "key_password": "{}"}}}},
    "audit.kafka.password": {"audit": {"kafka": {"bootstrap": "a:1", "password": "{}"}}},
}  # fmt: skip
SOCKETS: dict[str, dict[str, Any]] = {
    "clusters.main.bootstrap.0": {"cluster": {"bootstrap": ["unix:{}"]}},
    "clusters.main.dial.main": {"cluster": {"dial": {"a:1": "unix:{}"}}},
}


class Attacked:
    """A proxy whose admin API gets documents. `folder` has files of all kinds that no document may name."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        for name in ("audit", "captures", "rules"):
            (folder / name).mkdir()
        (folder / "rules" / "own.yaml").write_text("rules: []\n")
        (folder / "good").write_text("a certificate, as far as this goes")
        self.config = {
            "clusters": {"main": {"bootstrap": ["127.0.0.1:1"]}},
            "listeners": [{"name": "a", "bind": f"127.0.0.1:{self.port}", "cluster": "main"}],
            "rules": ["rules"], "audit": {"dir": "audit"}, "captures": "captures", "state": "state.json",
        }  # fmt: skip
        self.file = folder / "kproxy.yaml"
        self.file.write_text(yaml.safe_dump(self.config, sort_keys=False))

    def live(self) -> LiveProxy:
        return LiveProxy(self.file.read_text(), Origin(str(self.file), self.file))

    def document(self, part: dict[str, Any], value: str) -> str:
        """The config with this part, whose `{}` is the value."""
        part = yaml.safe_load(yaml.safe_dump(part).replace("{}", value))
        listener, cluster = part.pop("listener", {}), part.pop("cluster", {})
        changed = self.config | part
        changed["listeners"] = [changed["listeners"][0] | listener]
        changed["clusters"] = {"main": changed["clusters"]["main"] | cluster}
        return yaml.safe_dump(changed, sort_keys=False)


@pytest.fixture
def attacked(tmp_path: Path) -> Attacked:
    return Attacked(tmp_path)


def check(live: LiveProxy, text: str) -> list[str]:
    """The mistakes of a document over the API, which is not applied."""
    try:
        trio.from_thread.run(live.keeper.check, Source("<api>", text), trio_token=live.token)
    except DocumentError as error:
        return error.mistakes
    return []


def settings(kind: Any = Config, path: tuple[Any, ...] = (), info: str = "") -> Iterator[tuple[tuple[Any, ...], str]]:
    """Each setting of the schema: its place, with `0` and `main` for items and keys, and its declaration."""
    for one in _alternatives(kind):
        if isinstance(one, type) and issubclass(one, BaseModel):
            for name, field in one.model_fields.items():
                yield from settings(field.annotation, (*path, field.alias or name), f"{field.annotation} {field}")
        elif get_origin(one) in (list, dict):
            yield from settings(get_args(one)[-1], (*path, 0 if get_origin(one) is list else "main"), info)
        else:
            yield path, info


def test_file_settings_are_all_tested() -> None:
    """Each setting of the schema that names a file, and each secret, is in the tables above."""
    found = dict(settings())
    files = {path for path, info in found.items() if any(one in info for one in ("_resolve", "_existing", "_secret_f"))}
    secrets = {path for path in found if is_secret(path)}
    assert {".".join(map(str, path)) for path in files} == set(PLACES)
    hidden = {"admin.read_token_file", "audit.kafka.options.main"}
    assert {".".join(map(str, path)) for path in secrets} == {*SECRETS, *hidden}


@pytest.fixture
def hostile(attacked: Attacked) -> Iterator[dict[str, str]]:
    """Spellings of files that no document over the API may name. All have valid rules with code in them."""
    folder = attacked.folder
    with tempfile.TemporaryFile() as upload:
        upload.write(f"# {HIDDEN}\n{CODE}".encode())
        upload.flush()
        number = upload.fileno()
        own = folder / "captures" / "own.yaml"
        own.write_text(f"# {HIDDEN}\n{CODE}")
        (folder / "link").symlink_to(f"/proc/self/fd/{number}")
        (folder / "dir").symlink_to("/proc/self/fd")
        (folder / "own-link").symlink_to(own)
        os.link(own, folder / "own-hard")
        os.mkfifo(folder / "pipe")
        yield {
            "descriptor": f"/proc/self/fd/{number}",
            "process": f"/proc/{os.getpid()}/fd/{number}",
            "thread": f"/proc/thread-self/fd/{number}",
            "dots": f"/proc/self/../self/./fd/{number}",
            "outside": f"{folder}/../../../../../../../../proc/self/fd/{number}",
            "relative": f"../../../../../../../../proc/self/fd/{number}",
            "slashes": f"//dev//fd/{number}",
            "device": "/dev/stdin",
            "root": f"/proc/self/root{own}",
            "cwd": f"/proc/self/cwd/../../../../../..{own}",
            "environment": "/proc/self/environ",
            "link": "link",
            "folder link": f"dir/{number}",
            "pipe": "pipe",
            "own": "captures/own.yaml",
            "own spelled": "rules/../captures//own.yaml",
            "own link": "own-link",
            "own hard link": "own-hard",
        }


@pytest.mark.parametrize("place", [*PLACES, *SECRETS, *SOCKETS])
def test_file_over_api_hostile_spelling_refused(place: str, attacked: Attacked, hostile: dict[str, str]) -> None:
    """By each setting that names a file. Settings of files that kproxy writes, and sockets, are about names only."""
    reads = place not in ("captures", "state", "audit.dir", *SOCKETS)
    part = PLACES.get(place) or SECRETS.get(place) or SOCKETS[place]
    with attacked.live() as live:
        for spelling, name in hostile.items():
            if not reads and (spelling == "pipe" or spelling.startswith("own")):
                continue
            if place in SOCKETS and not name.startswith("/"):
                continue
            value = f"file:{name}" if place in SECRETS else name
            mistakes = check(live, attacked.document(part, value))
            assert mistakes, (place, spelling)
            assert all(HIDDEN not in one and "python" not in one for one in mistakes), (spelling, mistakes)
        assert live.keeper.config.rules == [str(attacked.folder / "rules")]


def test_path_guard_path_swapped_after_check_refused(attacked: Attacked) -> None:
    """The open file is checked, whatever the path led to before."""
    link, own = attacked.folder / "swapped", attacked.folder / "captures" / "own.yaml"
    own.write_text(CODE)

    class Swapped(PathGuard):
        target: object = None

        def check_name(self, path: str | Path) -> None:
            super().check_name(path)
            if path == link:
                link.unlink()
                link.symlink_to(str(self.target))

    with tempfile.TemporaryFile() as upload, (attacked.folder / "log").open("w") as log:
        (attacked.folder / "hard").hardlink_to(own)
        targets = [
            f"/proc/self/fd/{upload.fileno()}",
            "/proc/self/environ",
            "/proc/version",
            own,
            attacked.folder / "state.json",
            attacked.folder / "state.json.new",
            attacked.folder / "hard",
        ]
        written = [str(attacked.folder / name) for name in ("captures", "state.json")]
        for name in ("state.json", "state.json.new"):
            (attacked.folder / name).touch()
        for target in targets:
            link.unlink(missing_ok=True)
            link.symlink_to(attacked.folder / "good")
            guard = Swapped(written)
            guard.target = target
            with pytest.raises(OSError, match=r"not allowed over the admin API|kproxy writes this file itself"):
                read_named(link, guard=guard)
        before = os.dup(2)
        os.dup2(log.fileno(), 2)
        try:
            with pytest.raises(OSError, match="kproxy writes this file itself"):
                read_named(attacked.folder / "log", guard=PathGuard())
        finally:
            os.dup2(before, 2)
            os.close(before)
    assert read_named(attacked.folder / "good", guard=PathGuard(written)).startswith(b"a certificate")


def test_path_guard_kernel_mount_elsewhere_refused(attacked: Attacked, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as /proc of the host in a container. Its device number is found in the list of mounts."""
    device = (attacked.folder / "good").stat().st_dev
    lines = [
        f"24 1 {os.major(device)}:{os.minor(device)} / /host/p\\040c rw - {kind} {kind} rw" for kind in ("ext4", "proc")
    ]
    mounts, root = attacked.folder / "mounts", os.stat("/")
    monkeypatch.setattr("kproxy.base.named_file.MOUNTS", str(mounts))
    other = os.stat_result((*root[:2], device + 1, *root[3:]))
    stat = os.stat
    monkeypatch.setattr(os, "stat", lambda path, **more: other if path == "/" else stat(path, **more))
    mounts.write_text(f"{lines[0]}\n")
    assert read_named(attacked.folder / "good", guard=PathGuard())
    mounts.write_text("\n".join(lines))
    with pytest.raises(OSError, match="kernel's file systems"):
        read_named(attacked.folder / "good", guard=PathGuard())


def test_config_over_api_repeats_paths_in_force(attacked: Attacked) -> None:
    """A folder of captures in memory, which the own config names. No file in it can be read."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        attacked.config["captures"] = memory
        attacked.file.write_text(yaml.safe_dump(attacked.config, sort_keys=False))
        (Path(memory) / "own.yaml").write_text(CODE)
        with attacked.live() as live:
            assert check(live, attacked.document({"limits": {"max_connections": 50}}, "")) == []
            for rules in (memory, f"{memory}/own.yaml", f"{memory}/"):
                assert check(live, attacked.document({"rules": ["{}"]}, rules)), rules


def test_config_over_api_literal_is_not_logged(attacked: Attacked) -> None:
    """A secret at a wrong place of the document: the response quotes it, the log has the place."""
    with attacked.live() as live:
        for part in ({"listener": {"bind": HIDDEN}}, {HIDDEN: 1}, {"workers": HIDDEN}, {"rules": [HIDDEN]}):
            assert any("SECRET" in one for one in live.mistakes(attacked.document(part, "")))
        until(lambda: sum("config rejected" in line for line in live.said.lines) >= 8)
        assert not any("SECRET" in line for line in live.said.lines)
        assert any("<api>:" in line for line in live.said.lines)


def test_rules_over_api_from_other_path_run_no_code(attacked: Attacked) -> None:
    """A rule file that only a document over the API names is read, and has no code; also when it is read again."""
    other = attacked.folder / "other.yaml"
    other.write_text("rules: [{name: wait, kind: delay, delay: 1ms}]\n")
    with attacked.live() as live:
        live.apply(attacked.document({"rules": ["rules", "{}"]}, "other.yaml"))
        assert list(live.proxy.keeper.store.stored_rules) == ["wait"]
        other.write_text(CODE)
        assert not trio.from_thread.run(live.proxy.files.reload, live.proxy.keeper, trio_token=live.token)
        assert list(live.proxy.keeper.store.stored_rules) == ["wait"]
        mistakes = check(live, attacked.document({"rules": ["rules", "{}"]}, "other.yaml"))
        assert mistakes == [
            f"{other}:1:1: 1 error; `kproxy check` on the machine of kproxy shows them, except rules that run code"
        ]
        (attacked.folder / "rules" / "own.yaml").write_text(CODE)
        spelled = f"{attacked.folder}//./rules/"
        live.apply(attacked.document({"rules": ["{}"]}, spelled))
        assert list(live.proxy.keeper.store.stored_rules) == ["code"]
        # `..` behind a link leads elsewhere, though the path looks the same without both.
        (attacked.folder / "elsewhere" / "below").mkdir(parents=True)
        (attacked.folder / "elsewhere" / "rules").mkdir()
        (attacked.folder / "elsewhere" / "rules" / "planted.yaml").write_text(CODE)
        (attacked.folder / "away").symlink_to(attacked.folder / "elsewhere" / "below")
        assert check(live, attacked.document({"rules": ["away/../rules"]}, ""))


def test_rules_of_own_file_run_code_from_new_paths(attacked: Attacked) -> None:
    """An edited config file names a folder that the config at the start did not have."""
    (attacked.folder / "more").mkdir()
    (attacked.folder / "more" / "code.yaml").write_text(CODE)
    with attacked.live() as live:
        attacked.file.write_text(attacked.document({"rules": ["more"]}, ""))
        assert trio.from_thread.run(live.keeper.reload, trio_token=live.token)
        assert list(live.proxy.keeper.store.stored_rules) == ["code"]
        assert trio.from_thread.run(live.proxy.files.reload, live.proxy.keeper, trio_token=live.token)


def test_rules_of_path_that_own_file_has_no_more_run_no_code(attacked: Attacked) -> None:
    """The operator has taken it out of the config file; a document over the API cannot bring its code back."""
    for name in ("old", "new"):
        (attacked.folder / name).mkdir()
        (attacked.folder / name / "code.yaml").write_text(CODE)
    with attacked.live() as live:
        for name in ("old", "new"):
            attacked.file.write_text(attacked.document({"rules": [name]}, ""))
            assert trio.from_thread.run(live.keeper.reload, trio_token=live.token)
        assert check(live, attacked.document({"rules": ["new"]}, "")) == []
        assert check(live, attacked.document({"rules": ["old"]}, ""))
        assert check(live, attacked.document({"rules": ["rules", "old"]}, ""))


@pytest.mark.parametrize("place", PLACES)
def test_file_over_api_content_is_not_repeated(place: str, attacked: Attacked) -> None:
    """Neither in the response nor in the log: wrong YAML, wrong rules, wrong certificates, users and tokens."""
    texts = [f"{HIDDEN}: [x", f"rules: [{{name: {HIDDEN}, kind: {HIDDEN}}}]", f"{HIDDEN}\n{HIDDEN}\x07", f"*{HIDDEN}",
             f"{HIDDEN}:SCRAM-SHA-256$1:{HIDDEN}$a:b", f"-----BEGIN CERTIFICATE-----\n{HIDDEN}"]  # fmt: skip
    with attacked.live() as live:
        for text in texts:
            (attacked.folder / "secret").write_text(text)
            document = attacked.document(PLACES[place], "secret")
            try:
                found = check(live, document)
                live.apply(document, except_restart=True)
            except DocumentError as error:
                found += error.mistakes
            assert not any("SECRET" in one for one in found), found
        assert not any("SECRET" in line for line in live.said.lines)


@pytest.mark.parametrize("api", [True, False])
def test_variable_value_is_in_no_message(api: bool, attacked: Attacked, monkeypatch: pytest.MonkeyPatch) -> None:
    """In each setting of the schema, of a document over the API and of kproxy's own file; and not in the log."""
    monkeypatch.setenv("HUNTED", "hunter2:99999")
    documents = []
    for path, _ in settings():
        config = yaml.safe_load(yaml.safe_dump(attacked.config))
        at: Any = config
        for part, below in pairwise((*path, None)):
            if isinstance(at, list):
                at += [{}] * (not at)
            following: Any = "${HUNTED}" if below is None else [] if below == 0 else {}
            if isinstance(at, dict):
                at[part] = at.get(part, following) if below is not None else following
            elif below is None:
                at[0] = following
            at = at[part]
        documents.append(yaml.safe_dump(config, sort_keys=False))
    with attacked.live() as live:
        for text in documents:
            found = check(live, text)
            if not api:
                attacked.file.write_text(text)
                trio.from_thread.run(live.keeper.reload, trio_token=live.token)
                with suppress(DocumentError):
                    found = []
                    trio.from_thread.run(live.keeper.check, trio_token=live.token)
            assert not any("hunter" in one or "9999" in one for one in found), found
        assert live.keeper.rejected > 50 or api
        assert not any("hunter" in line or "9999" in line for line in live.said.lines)


def test_variable_over_api_outside_secret_is_refused(attacked: Attacked, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that is valid would be shown in the steps; a secret takes it, and is shown nowhere."""
    monkeypatch.setenv("HUNTED", "valid-name")
    with attacked.live() as live:
        (mistake,) = check(live, attacked.document({"listener": {"name": "${HUNTED}"}}, ""))
        assert "${HUNTED} is allowed for secrets only" in mistake
        options = {"audit": {"kafka": {"bootstrap": "a:1", "options": {"sasl.password": "{}"}}}}
        for part in (*SECRETS.values(), options):
            assert not any("HUNTED" in one for one in check(live, attacked.document(part, "${HUNTED}")))


def test_folder_of_rules_with_too_many_entries_is_refused(attacked: Attacked, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as `/`: it would be searched once a second."""
    monkeypatch.setattr("kproxy.rules.document.read.MOST_ENTRIES", 10)
    (attacked.folder / "many").mkdir()
    for number in range(11):
        (attacked.folder / "many" / str(number)).touch()
    with attacked.live() as live:
        (mistake,) = check(live, attacked.document({"rules": ["{}"]}, "many"))
        assert "more than 10 files and folders" in mistake


def test_certificates_over_api_are_taken(attacked: Attacked) -> None:
    """Files that an operator has put there are what a document may name."""
    authority = Authority(attacked.folder)
    cert = authority.issue("localhost")
    with attacked.live() as live:
        live.apply(attacked.document({"listener": {"tls": {"cert": str(cert)}}}, ""))
