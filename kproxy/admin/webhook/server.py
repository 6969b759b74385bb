"""HTTPS server of the webhook: `POST /inject` for AdmissionReviews, `/livez` and `/readyz` for probes, `/metrics` for
Prometheus.

It is `kproxy.admin.http_server` with TLS, with the same limits and the same refusals. Reviews run in a thread, one at a
time, and networks take turns: any client on the network may send the largest review.

A body that is not an AdmissionReview is refused in the form of the admin API, and Kubernetes applies its
`failurePolicy`. Every other review receives a response with its uid.
"""

from __future__ import annotations

import base64
import json
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Literal, get_args

import trio
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from structlog.typing import FilteringBoundLogger

from kproxy.admin.guard import JSON, GuardedApp, media_type
from kproxy.admin.http_server import CERTIFIED, serve_admin
from kproxy.admin.limits import body_of, network_of_peer
from kproxy.admin.operation import API, MOST_NESTED, MOST_VALUES, has_few_values
from kproxy.admin.problem import Problem
from kproxy.base.errors import InternalError
from kproxy.base.terminal import in_line
from kproxy.record.component_collectors import ProcessCollector
from kproxy.record.metrics.traffic import OPEN_METRICS, counter_family, exposition, registry
from kproxy.rules.values.address import Address
from kproxy.rules.values.model import found
from kproxy.rules.values.source import json_source, to_value, told
from kproxy.rules.values.tls import ListenerTls
from kproxy.runtime.io.fair_queue import RoundRobin
from kproxy.runtime.io.tls import ClientTls
from kproxy.runtime.rule_keeper import DOCUMENTS

from .annotations import SidecarOptions, short, shown
from .injection import Injection, inject

PATH = "/inject"
LONGEST_NAME = 256  # Characters of a namespace or name in the log: Kubernetes allows 253, but clients may send any text
LONGEST_HANDSHAKE = 10.0  # Seconds, as Kubernetes' default timeout for a webhook


@dataclass(eq=False)
class WaitingReview:
    turn: trio.Event = field(default_factory=trio.Event)
    gone: bool = False


class ReviewTurns:
    """Runs reviews one at a time. Networks take turns, so a network with many reviews delays only its own."""

    def __init__(self) -> None:
        self.busy = False
        self.queue: RoundRobin[WaitingReview] = RoundRobin(lambda waiter: waiter.gone)

    @asynccontextmanager
    async def turn(self, network: str) -> AsyncIterator[None]:
        """Wait for a turn; the context holds it."""
        if self.busy:
            waiter = WaitingReview()
            self.queue.add(network, waiter)
            try:
                await waiter.turn.wait()
            except BaseException:
                waiter.gone = True
                if waiter.turn.is_set():
                    self.pass_on()
                raise
        self.busy = True
        try:
            yield
        finally:
            self.pass_on()

    def pass_on(self) -> None:
        """Give the turn to the next review, if any."""
        waiter = self.queue.next()
        self.busy = waiter is not None
        if waiter is not None:
            waiter.turn.set()


def make_webhook(
    defaults: SidecarOptions, log: FilteringBoundLogger, metrics: WebhookMetrics, *, for_certified: bool = False
) -> GuardedApp:
    """Make the application. `defaults`: options that pods override by annotations. `for_certified`: reviews need a
    client certificate; probes and metrics do not."""
    turns = ReviewTurns()

    def check(request: Request) -> bool:
        if for_certified and not getattr(request.state, CERTIFIED, False):
            metrics.count("uncertified")
            text = "a certificate is needed that an authority of --client-ca has signed, and the client has shown none"
            raise Problem(403, "no_certificate", text, headers={"Connection": "close"})
        return True

    async def review(request: Request) -> Response:
        try:
            media_type(request, (JSON,))
            async with body_of(request) as data, turns.turn(network_of_peer(request)):
                answer = await trio.to_thread.run_sync(answer_review, data, defaults, limiter=DOCUMENTS)
        except Problem:
            metrics.count("unreadable")
            raise
        metrics.count(outcome_of(answer))
        log_outcome(log, answer)
        return JSONResponse(answer.body())

    async def alive(request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def scrape(request: Request) -> Response:
        return Response(await metrics.text(), media_type=OPEN_METRICS)

    routes = [
        Route(PATH, review, methods=["POST"]),
        Route("/livez", alive),
        Route("/readyz", alive),
        Route("/metrics", scrape),
    ]
    return GuardedApp(routes, lambda path: check if path == PATH else None, log)


def log_outcome(log: FilteringBoundLogger, answer: AdmissionAnswer) -> None:
    """Log the result for a pod, so that a missing sidecar can be explained."""
    request, injection = answer.request, answer.injection
    told = {"namespace": request.namespace, "pod": request.name, "uid": request.uid}
    about = {name: short(text, LONGEST_NAME) for name, text in told.items()}  # to escape a megabyte takes a second
    if injection.reasons:
        log.warning("pod refused", **about, reasons=injection.reasons)
    elif injection.patch:
        log.info("sidecar put into a pod", **about, warnings=injection.warnings or None)
    else:
        log.info("pod left as it is", **about, why=injection.left, warnings=injection.warnings or None)


async def serve_webhook(
    bind: Address, tls: ListenerTls, defaults: SidecarOptions, log: FilteringBoundLogger, *,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:  # fmt: skip
    """Serve until cancelled. Reports the URL once it listens. Raises InternalError when its certificate cannot be used
    or its address not be bound."""
    secured = ClientTls(tls, LONGEST_HANDSHAKE, trio.Lock(), log)
    app = make_webhook(defaults, log, WebhookMetrics(tls.cert), for_certified=tls.client_ca is not None)
    polls = count().__next__  # no reactor shares this process
    try:
        await serve_admin(app, bind.host, bind.port, log, polls, secured, task_status=task_status)
    except OSError as error:
        raise InternalError(f"the webhook cannot bind {bind}: {error.strerror or error}") from None


async def run_webhook(bind: Address, tls: ListenerTls, defaults: SidecarOptions, log: FilteringBoundLogger) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:
            url = await nursery.start(serve_webhook, bind, tls, defaults, log)
            log.info("webhook listens", url=f"{url}{PATH}", image=defaults.image, native=defaults.native)
            async for number in signals:
                log.info("signal", name=signal.Signals(number).name)
                break
            nursery.cancel_scope.cancel()


ReviewOutcome = Literal["injected", "left", "refused", "unreadable", "uncertified"]
"""Outcome of a review. unreadable: the body is not an AdmissionReview. uncertified: the client showed no certificate of
--client-ca. Kubernetes applies `failurePolicy` to both."""


class WebhookMetrics(Collector):
    """Counters of the webhook's process, which has one certificate."""

    def __init__(self, certificate: str) -> None:
        self.reviews: Counter[str] = Counter(dict.fromkeys(get_args(ReviewOutcome), 0))
        self.process = ProcessCollector({("client", "webhook"): certificate})
        self.process.ready = True
        self.registry = registry(self, self.process)

    def count(self, outcome: ReviewOutcome) -> None:
        self.reviews[outcome] += 1

    def collect(self) -> Iterator[Metric]:
        text = "Reviews that the webhook has answered, by what became of the pod."
        yield counter_family("kproxy_webhook_reviews", text, "outcome", self.reviews)

    async def text(self) -> bytes:
        await trio.to_thread.run_sync(self.process.read_expiries, self.process.files)
        return b"".join(exposition(self.registry))


def outcome_of(answer: AdmissionAnswer) -> ReviewOutcome:
    injection = answer.injection
    return "refused" if injection.reasons else "injected" if injection.patch else "left"


VERSION, KIND = "admission.k8s.io/v1", "AdmissionReview"
LONGEST_UID = 256
LONGEST_REASON = 4000  # Characters of a refusal: Kubernetes shows it to the user and writes it into events


@dataclass(frozen=True, slots=True)
class AdmissionRequest:
    """Fields of an AdmissionReview's request that the webhook uses."""

    uid: str
    operation: str
    kind: str
    subresource: str
    namespace: str
    name: str
    pod: Any


@dataclass(frozen=True, slots=True)
class AdmissionAnswer:
    """Response to one AdmissionReview, with the request and the result for the log."""

    request: AdmissionRequest
    injection: Injection

    def body(self) -> dict[str, Any]:
        injection = self.injection
        response: dict[str, Any] = {"uid": self.request.uid, "allowed": not injection.reasons}
        if injection.reasons:
            message = "; ".join(injection.reasons)
            if len(message) > LONGEST_REASON:
                message = message[: LONGEST_REASON - 1] + "…"
            response["status"] = {"code": 422, "reason": "Invalid", "message": f"no kproxy sidecar: {message}"}
        if injection.patch:
            data = json.dumps(injection.patch, separators=(",", ":")).encode()
            response |= {"patchType": "JSONPatch", "patch": base64.b64encode(data).decode()}
        if injection.warnings:
            response["warnings"] = [f"kproxy: {one}" for one in injection.warnings]
        return {"apiVersion": VERSION, "kind": KIND, "response": response}


def answer_review(data: bytes, defaults: SidecarOptions) -> AdmissionAnswer:
    """Return the response to a request's body. Raises Problem if it is not an AdmissionReview."""
    request = read_request(data)
    return AdmissionAnswer(request, decide(request, defaults))


def decide(request: AdmissionRequest, defaults: SidecarOptions) -> Injection:
    if request.kind != "v1 Pod" or request.subresource:
        what = f"{request.kind}{'/' if request.subresource else ''}{request.subresource}"
        reason = f"the webhook is for pods (v1 Pod), and was asked about {shown(what)}"
        return Injection(reasons=[f"{reason}: its MutatingWebhookConfiguration has other rules"])
    if request.operation != "CREATE":
        warning = f"a pod gets its sidecar when it is made; nothing was done at {shown(request.operation)}"
        return Injection(left="not a new pod", warnings=[warning])
    return inject(request.pod, defaults)


def read_request(data: bytes) -> AdmissionRequest:
    """Return the request of an AdmissionReview. Raises Problem with all mistakes."""
    document = read_document(data)
    if not isinstance(document, dict):
        raise invalid([("", f"expected an {KIND} (mapping), got {found(document)}")])
    mistakes: list[tuple[str, str]] = []
    for name, wanted in (("apiVersion", VERSION), ("kind", KIND)):
        if document.get(name) != wanted:
            mistakes.append((name, f'expected "{wanted}", got {shown(document.get(name))}'))
    request = document.get("request")
    if not isinstance(request, dict):
        raise invalid([*mistakes, ("request", f"expected a mapping, got {shown(request)}")])
    texts = {
        name: text_of(request, name, mistakes) for name in ("uid", "operation", "subResource", "namespace", "name")
    }
    if not 0 < len(texts["uid"]) <= LONGEST_UID:
        mistakes.append(("request.uid", f"expected 1 to {LONGEST_UID} characters, got {len(texts['uid'])}"))
    elif in_line(texts["uid"]) != texts["uid"]:  # it is sent back as it came, and half a character cannot be
        mistakes.append(("request.uid", f"expected visible characters, got {shown(texts['uid'])}"))
    kind = request.get("kind")
    if not isinstance(kind, dict):
        mistakes.append(("request.kind", f"expected a mapping, got {shown(kind)}"))
        kind = {}
    parts = [text_of(kind, name, mistakes, "request.kind.") for name in ("group", "version", "kind")]
    if mistakes:
        raise invalid(mistakes)
    group, version, name = parts
    pod = request.get("object")
    return AdmissionRequest(
        texts["uid"], texts["operation"], f"{group}{'/' if group else ''}{version} {name}", texts["subResource"],
        texts["namespace"], texts["name"] or name_of(pod), pod,
    )  # fmt: skip


def read_document(data: bytes) -> Any:
    """Return the values of a JSON document. Raises Problem with all syntax errors."""
    if not has_few_values(data):
        message = f"more than {MOST_VALUES} values, or nested deeper than {MOST_NESTED} times"
        raise Problem(422, "invalid_body", message)
    source = json_source(API, data)
    document = to_value(source)
    if lines := told(source.lines(), source.untold):
        raise Problem(422, "invalid_document", f"the body is no {KIND}", lines)
    return document


def invalid(mistakes: list[tuple[str, str]]) -> Problem:
    """Problem of valid JSON that is not an AdmissionReview."""
    return Problem(422, "invalid_body", f"the body is no {KIND} of {VERSION}", mistakes)


def text_of(part: Mapping[Any, Any], name: str, mistakes: list[tuple[str, str]], before: str = "request.") -> str:
    """Return the text at a name, "" if absent; a wrong type is added to `mistakes`."""
    value = part.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        mistakes.append((f"{before}{name}", f"expected text, got {shown(value)}"))
        return ""
    return value


def name_of(pod: Any) -> str:
    """Return the name of a pod, or its `generateName` and a star."""
    metadata = pod.get("metadata") if isinstance(pod, dict) else None
    beginning = metadata.get("generateName") if isinstance(metadata, dict) else None
    return f"{beginning}*" if isinstance(beginning, str) else ""
