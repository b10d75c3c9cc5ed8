"""What is counted, for Prometheus and for whoever wants to know where the time goes."""

from __future__ import annotations

from collections import Counter as Tally

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from feasibly.answer.record import Answer
from feasibly.serve.asked import Answering
from feasibly.serve.batching import Watch

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PHASES = ("parse", "wait", "answer", "write")
_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Meters(Watch):
    """A registry of this server's own, so that two in one process do not mix."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        here = self.registry
        self.requests = Counter(
            "feasibly_requests", "Requests by status.", ("method", "status"), registry=here
        )
        self.seconds = Histogram(
            "feasibly_phase_seconds",
            "Seconds of a request, by phase.",
            ("phase",),
            buckets=_SECONDS,
            registry=here,
        )
        self.rows = Counter("feasibly_rows", "Rows answered.", ("model", "rung", "outcome"), registry=here)
        self.batches = Histogram(
            "feasibly_batch_rows", "Rows answered at once.", buckets=_ROWS, registry=here
        )
        self.batch_seconds = Histogram(
            "feasibly_batch_seconds", "Seconds a batch took.", buckets=_SECONDS, registry=here
        )
        self.waiting = Gauge("feasibly_waiting_rows", "Rows in the queue.", registry=here)
        self.loaded = Gauge(
            "feasibly_model_ready", "Whether a model can be asked.", ("model",), registry=here
        )
        self._outcomes: dict[tuple[str, str, str], Counter] = {}
        """Found once: looking a counter up by its labels takes longer than counting."""
        self._phases = {phase: self.seconds.labels(phase) for phase in PHASES}

    def batch(self, model: Answering, rows: int, seconds: float) -> None:
        """From the worker's thread; the client library locks."""
        self.batches.observe(rows)
        self.batch_seconds.observe(seconds)

    def phases(self, **seconds: float) -> None:
        """How long the phases of one request took."""
        for phase, spent in seconds.items():
            self._phases[phase].observe(spent)

    def answered(self, model: str, answer: Answer) -> None:
        """Count rows by what became of them."""
        pairs = Tally(zip(answer.rung, answer.outcome, strict=True))
        for (rung, outcome), count in pairs.items():
            labels = (model, rung, outcome.name)
            if labels not in self._outcomes:
                self._outcomes[labels] = self.rows.labels(*labels)
            self._outcomes[labels].inc(count)

    def text(self) -> bytes:
        """The exposition format."""
        return generate_latest(self.registry)
