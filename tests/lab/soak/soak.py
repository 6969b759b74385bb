"""One soak: clients start, things go wrong, clients end, and all that is known is held against each other."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from kproxy.testing.process import children_of
from tests.lab.soak import records, verdict
from tests.lab.soak.chaos import LONG, Chaos, Step
from tests.lab.soak.journals import acknowledged, content, java_acknowledged, notes
from tests.lab.soak.scene import PARTITIONS, Scene
from tests.lab.soak.vitals import Vitals, descriptors
from tests.support.processes import connections_to, sockets_of
from tests.support.raw_client import RawClient
from tests.support.wait import until

MEMBERS, TRANSFORMERS = 3, 2
SETTLE = 90.0
"""Seconds until everybody has caught up after the last trouble; it takes a few on a quiet machine."""
SLACK = 3
"""Descriptors that a process may have more of than when it was idle at first: files of the audit that are being
written, compressed and published at that moment."""

UNCOUNTED = 20
"""Connections that may have come to a killed worker, or ended there, in its last second: what it counted then, nobody
was told. It is a few, or all that there are where clients had just come back."""


@dataclass
class Told:
    """What came of it. `findings` empty: all is well. `facts` are for people."""

    findings: list[str] = field(default_factory=list)
    facts: list[str] = field(default_factory=list)


class Soak:
    """Of one scene. `rate` is records a second of the numbered producer; `with_java`: a Java producer, too."""

    def __init__(self, scene: Scene, *, rate: int, with_java: bool, say: Callable[[str], object]) -> None:
        self.scene, self.rate, self.with_java, self.say = scene, rate, with_java, say
        self.told = Told()
        self.chaos = Chaos(scene, self.start_member, self.start_transformer)
        self.idle: dict[str, int] = {}

    # ---- clients

    def start_member(self, index: int) -> None:
        self.scene.clients.start(
            f"member{index}", "member", topic=self.scene.topic("in"), group=f"soak-readers{self.scene.tag}"
        )

    def start_transformer(self, index: int) -> None:
        self.scene.clients.start(
            f"transformer{index}", "transformer", topic=self.scene.topic("in"), to=self.scene.topic("out"),
            group=f"soak-transformers{self.scene.tag}", id=f"soak-transformer-{index}{self.scene.tag}",
        )  # fmt: skip

    def start_clients(self) -> None:
        self.scene.clients.start(
            "producer", "producer", topic=self.scene.topic("in"), partitions=PARTITIONS, rate=self.rate
        )
        for index in range(MEMBERS):
            self.start_member(index)
        for index in range(TRANSFORMERS):
            self.start_transformer(index)
        if self.with_java:
            self.scene.clients.start_java(self.scene.kafka.libs, self.scene.topic("java"))

    # ---- the run

    def run(self, lanes: tuple[list[Step], list[Step]], seconds: float) -> Told:
        """Findings and facts. Raises AssertionError and OSError when the scene itself breaks down."""
        scene = self.scene
        scene.create_topics("in", "out", *["java"] * self.with_java)
        scene.wait_whole()
        self.look_idle()
        begun = time.monotonic()
        with Vitals(scene.proxy) as vitals:
            self.start_clients()
            until(lambda: self.caught_up(1) or time.sleep(0.2), LONG)  # everybody has got going
            self.chaos.run(*lanes, say=self.say)
            time.sleep(max(0.0, begun + seconds - time.monotonic()))
            scene.wait_whole(LONG)
            self.say("the clients end")
            self.end_clients()
            self.counters(vitals)
            self.look_for_leaks()
            self.told.findings += vitals.findings + vitals.memory_findings()
            self.told.facts += vitals.told()
        self.end_proxy()
        self.told.facts.append(f"did {dict(sorted(self.chaos.done.items()))}, "
                               f"left out {dict(self.chaos.left_out)}")  # fmt: skip
        return self.told

    def look_idle(self) -> None:
        """How many descriptors each process has once it has served somebody and nobody is there."""
        with RawClient(self.scene.proxy.bootstrap) as one, RawClient(self.scene.proxy.bootstrap) as other:
            one.brokers()
            other.brokers()
        until(self.nobody, LONG)
        self.idle = self.open_ones()

    def nobody(self) -> bool:
        """Whether no client is connected, as kproxy knows it."""
        with suppress(OSError):
            return self.scene.proxy.metric("kproxy_connections_open") == 0 or bool(time.sleep(0.2))
        return False

    def open_ones(self) -> dict[str, int]:
        supervisor = self.scene.proxy.pid
        return {"supervisor": descriptors(supervisor), "worker": max(map(descriptors, children_of(supervisor)))}

    def end_clients(self) -> None:
        """The writer first; the others once they have caught up, or have had the time to. Then what was noted is
        judged."""
        scene = self.scene
        self.nobody_goes_past()
        first = [name for name in ("producer", "java") if name in scene.clients.running]
        codes = {name: scene.clients.stop(name, LONG) for name in first}
        codes.pop("java", None)  # the JVM's own for SIGTERM
        found, written, failed = acknowledged(scene.clients.journals["producer-0"])
        self.told.findings += failed
        until(lambda: self.caught_up(written) or time.sleep(0.5), SETTLE + LONG)
        for name in list(scene.clients.running):
            codes[name] = scene.clients.stop(name, LONG)
        self.told.findings += [f"{name} ended with {code}" for name, code in codes.items() if code]
        self.judge(found, written)

    def nobody_goes_past(self) -> None:
        """No client is connected to a broker itself, whatever addresses it has learnt in all this."""
        brokers = set(connections_to(self.scene.kafka.ports("DIRECT")))
        for name, client in self.scene.clients.running.items():
            if sockets_of(client.pid) & brokers:
                self.told.findings.append(f"{name} is connected to a broker, past kproxy")

    def caught_up(self, written: int) -> bool:
        """Whether the transformers have committed, and the group has read, to the end."""
        ends = records.committed(self.scene.kafka.bootstrap(), [
            f"prod.soak-{word}{self.scene.tag}" for word in ("readers", "transformers")
        ], f"prod.{self.scene.topic('in')}", PARTITIONS)  # fmt: skip
        return all(offset >= written for offset in ends)

    def judge(self, found: Any, written: int) -> None:
        scene, told = self.scene, self.told
        direct = scene.kafka.bootstrap()
        log = content(direct, f"prod.{scene.topic('in')}", PARTITIONS)
        changed = content(direct, f"prod.{scene.topic('out')}", PARTITIONS)
        own = {name: list(notes(path)) for name, path in scene.clients.journals.items()}
        told.findings += verdict.numbered(log, found, written)
        told.findings += verdict.transformed(changed, written)
        members = {name: lines for name, lines in own.items() if name.startswith("member")}
        told.findings += verdict.members(log, members)
        counts = [line for name, lines in own.items() if name.startswith("transformer") for line in lines]
        done, aborted = (sum(line.get(key, 0) for line in counts) for key in ("transactions", "aborted"))
        stuck = sum("stuck" in line for line in counts)
        begins = sum("begins" in line for lines in members.values() for line in lines)
        told.facts.append(f"{written * PARTITIONS} records written and acknowledged, {sum(map(len, changed.values()))} "
                          f"changed in {done} transactions ({aborted} aborted, {stuck} calls stuck in librdkafka), "
                          f"{begins} assignments in the group of readers")  # fmt: skip
        if self.with_java:
            acked = java_acknowledged(scene.clients.folder / "java.out")
            told.findings += verdict.java(content(direct, f"prod.{scene.topic('java')}", PARTITIONS), acked)
            told.findings += [] if acked else ["Java: nothing was acknowledged"]
            told.facts.append(f"{len(acked)} records acknowledged to Kafka's Java producer")

    # ---- kproxy itself

    def counters(self, vitals: Vitals) -> None:
        """They add up, over workers that live and those that died."""
        until(self.nobody, LONG)
        vitals.look()
        restarts, killed = vitals.total("kproxy_worker_restarts_total"), self.chaos.killed_workers
        requests, responses = (vitals.total(f"kproxy_{what}_total") for what in ("requests", "responses"))
        opened, closed = (vitals.total(f"kproxy_connections_{what}_total") for what in ("opened", "closed"))
        rejected, stopped = (vitals.total(f"kproxy_{what}_total") for what in ("rules_rejected", "requests_blocked"))
        self.told.facts.append(
            f"{requests:.0f} requests, {responses:.0f} responses, {restarts:.0f} workers restarted, "
            f"{opened:.0f} connections opened, {closed:.0f} closed"
        )
        if restarts != killed:
            self.told.findings.append(f"{killed} workers were killed, kproxy_worker_restarts_total says {restarts:g}")
        if responses > requests or not requests:
            self.told.findings.append(f"{responses:g} responses to {requests:g} requests")
        if rejected or stopped:
            self.told.findings.append(f"{rejected:g} rule sets were rejected, {stopped:g} frames stopped")
        lost = sum(line["lost"] for line in self.scene.proxy.said("worker ended, another one is started"))
        if abs(opened - closed - lost) > UNCOUNTED * killed:
            self.told.findings.append(
                f"{opened:g} connections opened, {closed:g} closed, {lost} lost with their worker"
            )

    def look_for_leaks(self) -> None:
        """Descriptors are back to what they were."""

        def back() -> bool:
            return all(now <= self.idle[what] + SLACK for what, now in self.open_ones().items()) or bool(
                time.sleep(0.2)
            )

        with suppress(AssertionError):
            until(back, 30)
        self.told.facts.append(f"descriptors: {self.idle} at first, {self.open_ones()} at the end")
        self.told.findings += [f"descriptors of {what}: {now}, at first {self.idle[what]}"
                               for what, now in self.open_ones().items() if now > self.idle[what] + SLACK]  # fmt: skip

    def end_proxy(self) -> None:
        """In order; then its log and its audit are read."""
        proxy = self.scene.proxy
        assert proxy.child is not None
        if (code := proxy.child.stop(60)) != 0:
            self.told.findings.append(f"kproxy ended with {code}")
        log = proxy.child.log.read_text(errors="replace").splitlines()
        self.told.findings += records.log_findings(log)
        for judge in (lambda folder: records.audit(folder, self.chaos.killed_workers), records.verified):
            findings, facts = judge(self.scene.audit)
            self.told.findings += findings
            self.told.facts += facts
