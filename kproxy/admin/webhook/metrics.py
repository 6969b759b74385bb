"""Prometheus metrics of the webhook: what became of reviews, and when its certificate expires."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Literal, get_args

import trio
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from kproxy.record.component_collectors import ProcessCollector
from kproxy.record.metrics.traffic import counter_family, exposition, registry

from .review import AdmissionAnswer

ReviewOutcome = Literal["injected", "left", "refused", "unreadable", "uncertified"]
"""Outcome of a review for its pod. unreadable: what came could not be read as an AdmissionReview; uncertified: it came
without the certificate that --client-ca asks for. Kubernetes does what its `failurePolicy` says of both."""


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
        await trio.to_thread.run_sync(self.process.look, self.process.files)
        return b"".join(exposition(self.registry))


def outcome_of(answer: AdmissionAnswer) -> ReviewOutcome:
    injection = answer.injection
    return "refused" if injection.reasons else "injected" if injection.patch else "left"
