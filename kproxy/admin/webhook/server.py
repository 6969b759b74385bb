"""HTTPS server of the webhook: `POST /inject` answers AdmissionReviews, `/livez` and `/readyz` those who probe, and
`/metrics` Prometheus.

Strategy: it is the admin address' own server (`kproxy.admin.live`) with TLS, so that connections, bodies, the time that
they may take and the form of refusals are bounded and made as there. Reviews are answered beside the event loop, one at
a time, and those who ask take turns: whoever reaches the webhook over the network may send the largest there are.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count

import trio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from structlog.typing import FilteringBoundLogger

from kproxy.admin.guard import JSON, media_type
from kproxy.admin.live import CERTIFIED, serve_admin
from kproxy.admin.operation import body_of
from kproxy.admin.places import network_of_peer
from kproxy.admin.problem import Problem
from kproxy.admin.refusals import SafeAnswers, guarded, no_route
from kproxy.base.errors import InternalError
from kproxy.record.metrics.traffic import OPEN_METRICS
from kproxy.rules.values.address import Address
from kproxy.rules.values.tls import ListenerTls
from kproxy.runtime.io.tls import ClientTls
from kproxy.runtime.io.turn_order import Queue
from kproxy.runtime.rules.keeper import DOCUMENTS

from .annotations import SidecarOptions, short
from .metrics import WebhookMetrics, outcome_of
from .review import AdmissionAnswer, answer_review

PATH = "/inject"
LONGEST_NAME = 256
"""Characters of a namespace or a name that the log has: Kubernetes allows 253, and whoever asks may send any text."""
LONGEST_HANDSHAKE = 10.0
"""Seconds: Kubernetes itself waits that long for an answer, unless its configuration says otherwise."""


@dataclass(eq=False)
class WaitingReview:
    """Review that waits for its turn; `gone`: it is not wanted any more."""

    turn: trio.Event = field(default_factory=trio.Event)
    gone: bool = False


class ReviewTurns:
    """Turns of reviews, one at a time. Networks take turns, so that one with a hundred waits for its own."""

    def __init__(self) -> None:
        self.busy = False
        self.queue: Queue[WaitingReview] = Queue(lambda waiter: waiter.gone)

    @asynccontextmanager
    async def turn(self, network: str) -> AsyncIterator[None]:
        """Wait for a turn, and have it until the end of the context."""
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
        """Give the turn to the next one; `busy` stays true as long as there is one."""
        waiter = self.queue.next()
        self.busy = waiter is not None
        if waiter is not None:
            waiter.turn.set()


def make_webhook(
    defaults: SidecarOptions, log: FilteringBoundLogger, metrics: WebhookMetrics, *, for_certified: bool = False
) -> Starlette:
    """Make the application. `defaults` are the options of pods whose annotations say no others. `for_certified`: only
    clients with a certificate may ask; those who probe or scrape need none."""
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
        tell(log, answer)
        return JSONResponse(answer.body())

    async def alive(request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def scrape(request: Request) -> Response:
        return Response(await metrics.text(), media_type=OPEN_METRICS)

    return Starlette(
        routes=[
            Route(PATH, guarded(check, log, review), methods=["POST"]),
            Route("/livez", alive),
            Route("/readyz", alive),
            Route("/metrics", scrape),
        ],
        middleware=[Middleware(SafeAnswers)],
        exception_handlers={HTTPException: no_route},
    )


def tell(log: FilteringBoundLogger, answer: AdmissionAnswer) -> None:
    """Log what became of a pod: nobody who looks for a sidecar that is missing has to guess."""
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
    polls = count().__next__  # there is no reactor beside it that would want its turn
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
