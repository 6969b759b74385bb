"""What is measured: HAProxy in TCP mode, and kproxy with more and less to do. Each is a command with a port."""

from __future__ import annotations

import json
import resource
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kproxy.runtime.capacity import EACH, OTHERS

HERE = Path(__file__).parent
HOST = "127.0.0.1"
BEFORE = "before"
"""What the targets of an earlier kproxy begin with."""
KPROXY = Path(sys.executable).with_name("kproxy")
ADMIN_AT = 9
"""The admin address of a target that has one, counted from its first port."""
PORTS = 30
"""Each target's own; the largest answer names 20 brokers."""
RENAMED = "prod."
"""What the brokers' names begin with where kproxy renames."""


@dataclass(frozen=True)
class Target:
    """`plain`: it rewrites no addresses, so a broker must have a listener for it that is advertised at its port.

    `command(folder, listen, upstream)`: PORTS from `listen` on are its own; files may be written to the folder.
    """

    name: str
    text: str
    plain: bool
    command: Callable[[Path, int, int], list[object]]


def tool(name: str, package: str) -> str:
    """The path of a program. Ends the bench, naming the Debian package that brings it, when there is none."""
    path = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
    if path is None:
        sys.exit(f"{name} is not installed (Debian: apt-get install {package})")
    return path


def most_connections() -> int:
    """A proxy has two descriptors for each, and some besides, of which kproxy keeps most back; 10,000 where the hard
    limit allows."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(10_000, (most - OTHERS - 100) // EACH)


def haproxy(folder: Path, listen: int, upstream: int) -> list[object]:
    path = folder / f"haproxy-{listen}.cfg"
    path.write_text(
        f"global\n  nbthread 1\n  maxconn {most_connections()}\n  maxpipes 100\n"
        "defaults\n  mode tcp\n  timeout connect 5s\n  timeout client 1h\n"
        "  timeout server 1h\n  option splice-auto\nlisten kafka\n"
        f"  bind {HOST}:{listen}\n  server broker {HOST}:{upstream}\n"
    )
    return [tool("haproxy", "haproxy"), "-db", "-f", path]


def kproxy(folder: Path, listen: int, upstream: int) -> list[object]:
    """As one starts it: no rule, and every broker address in an answer becomes one of its own."""
    return [KPROXY, "run", "--listen", f"{HOST}:{listen}", "--upstream", f"{HOST}:{upstream}"]


def kproxy_off(folder: Path, listen: int, upstream: int) -> list[object]:
    """Nothing is rewritten at all."""
    document = {
        "clusters": {"main": {"bootstrap": [f"{HOST}:{upstream}"]}},
        "listeners": [{"name": "main", "bind": f"{HOST}:{listen}", "cluster": "main", "advertise": False}],
    }
    path = folder / f"kproxy-{listen}.yaml"
    path.write_text(json.dumps(document))  # JSON is YAML
    return [KPROXY, "run", "--config", path]


def kproxy_rename(folder: Path, listen: int, upstream: int) -> list[object]:
    """Addresses and topic names are rewritten."""
    rule = {"name": "all", "kind": "rename_topic", "topics": {name: RENAMED + name for name in ("orders", "load-*")}}
    path = folder / f"rules-{listen}.yaml"
    path.write_text(json.dumps({"rules": [rule]}))
    return [*kproxy(folder, listen, upstream), "--rules", path]


def kproxy_rules(folder: Path, listen: int, upstream: int) -> list[object]:
    """A hundred rules about other topics, clients and APIs."""
    about = ({"topic": "other-{}"}, {"client_id": "other-{}"}, {"api": "Fetch", "topic": "other-{}"}, {"group": "g-{}"})
    rules = [
        {
            "name": f"rule {number}", "kind": "error", "error": 29,
            "match": {key: word.format(number) for key, word in about[number % len(about)].items()},
        }
        for number in range(100)
    ]  # fmt: skip
    path = folder / f"rules-{listen}.yaml"
    path.write_text(json.dumps({"rules": rules}))
    return [*kproxy(folder, listen, upstream), "--rules", path]


def kproxy_workers(folder: Path, listen: int, upstream: int) -> list[object]:
    return [*kproxy(folder, listen, upstream), "--workers", 2]


def kproxy_evaluated(folder: Path, listen: int, upstream: int) -> list[object]:
    """Ten rules for which each Produce request has to be seen whole, and that nobody notices; what they count of each
    connection is nothing that workers have to share."""
    rules = [
        {"name": f"rule {number}", "kind": "quota", "per": ["topic", "connection"], "produce": f"{100 + number}GB/s"}
        for number in range(10)
    ]
    path = folder / f"rules-{listen}.yaml"
    path.write_text(json.dumps({"rules": rules}))
    return [*kproxy(folder, listen, upstream), "--rules", path]


def kproxy_evaluated_workers(folder: Path, listen: int, upstream: int) -> list[object]:
    return [*kproxy_evaluated(folder, listen, upstream), "--workers", 2]


def kproxy_admin(folder: Path, listen: int, upstream: int) -> list[object]:
    return [*kproxy(folder, listen, upstream), "--admin", f"{HOST}:{listen + ADMIN_AT}"]


def kproxy_audit(detail: str | None) -> Callable[[Path, int, int], list[object]]:
    """Run with an audit in files, at this level for all APIs (None: default)."""

    def command(folder: Path, listen: int, upstream: int) -> list[object]:
        audit = {"dir": str(folder / f"audit-{listen}")} | ({} if detail is None else {"level": detail})
        document = {
            "clusters": {"main": {"bootstrap": [f"{HOST}:{upstream}"]}},
            "listeners": [{"name": "main", "bind": f"{HOST}:{listen}", "cluster": "main"}],
            "audit": audit,
        }
        path = folder / f"audit-{listen}.yaml"
        path.write_text(json.dumps(document))
        return [KPROXY, "run", "--config", path]

    return command


def net_alone(folder: Path, listen: int, upstream: int) -> list[object]:
    return [sys.executable, "-m", "tests.lab.bench.net_alone", listen, upstream]


TARGETS = {
    target.name: target
    for target in (
        Target("haproxy", "HAProxy, one thread, mode tcp, splice-auto", True, haproxy),
        Target("kproxy", "kproxy with defaults: no rules, broker addresses rewritten", False, kproxy),
        Target("off", "kproxy with `advertise: false` and no rules: nothing is rewritten", True, kproxy_off),
        Target("rename", "kproxy with a rename rule, broker addresses and topic names rewritten", False, kproxy_rename),
        Target("rules", "kproxy with a hundred rules that match other traffic", False, kproxy_rules),
        Target("workers", "kproxy with two worker processes", False, kproxy_workers),
        Target(
            "evaluated",
            "kproxy with ten quotas for each topic of a connection, none of them reached",
            False,
            kproxy_evaluated,
        ),
        Target("evaluated-workers", "the same with two worker processes", False, kproxy_evaluated_workers),
        Target("admin", "kproxy with its admin server", False, kproxy_admin),
        Target("view", "kproxy with its admin server and an open page that shows the traffic", False, kproxy_admin),
        Target("view-closed", "kproxy with its admin server, a minute after a page was closed", False, kproxy_admin),
        Target("audit-connections", "kproxy with an audit of connections only", False, kproxy_audit("connections")),
        Target("audit", "kproxy with a default audit: Produce, Fetch by summary", False, kproxy_audit(None)),
        Target("audit-requests", "kproxy with an audit of every request", False, kproxy_audit("requests")),
        Target("alone", "kproxy's `net` with a session that does not look at the bytes", True, net_alone),
    )
}


def targets_before(program: Path) -> dict[str, Target]:
    """Return what is compared with an older checkout, run by its `kproxy`, by the names `before` and `before-NAME`."""
    found = {}
    for name in ("kproxy", "rename", "rules", "workers", "audit", "audit-requests"):
        now = TARGETS[name]
        key = BEFORE if name == "kproxy" else f"{BEFORE}-{name}"

        def command(folder: Path, listen: int, upstream: int, now: Target = now) -> list[object]:
            return [program, *now.command(folder, listen, upstream)[1:]]

        found[key] = Target(key, f"an earlier kproxy as `{name}`", now.plain, command)
    return found


def with_before(names: Sequence[str]) -> list[str]:
    """Return these names and those of the same targets of an earlier kproxy, where one takes part."""
    before = [BEFORE if name == "kproxy" else f"{BEFORE}-{name}" for name in names]
    return [*names, *(name for name in before if name in TARGETS)]
