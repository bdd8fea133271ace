"""Counts and times of sends for Prometheus; needs the extra ``congreve[prometheus]``."""

from typing import TYPE_CHECKING

from prometheus_client import REGISTRY, Counter, Histogram

from congreve.client.hooks import SendContext, SendHook

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 3.0)


class PrometheusHook(SendHook):
    """Metrics of all producers that have this hook, by topic and broker.

    ``congreve_client_sent_messages_total`` and ``..._sent_bytes_total`` of what was stored,
    ``congreve_client_send_failures_total`` by error, ``congreve_client_send_seconds`` of attempts.
    """

    def __init__(self, registry: "CollectorRegistry" = REGISTRY) -> None:
        labels = ("topic", "broker")
        self._messages = Counter(
            "congreve_client_sent_messages", "Messages stored", labels, registry=registry
        )
        self._bytes = Counter(
            "congreve_client_sent_bytes", "Bytes of their bodies", labels, registry=registry
        )
        self._failures = Counter(
            "congreve_client_send_failures",
            "Attempts that failed",
            (*labels, "error"),
            registry=registry,
        )
        self._seconds = Histogram(
            "congreve_client_send_seconds",
            "From an attempt's start to its answer",
            labels,
            registry=registry,
            buckets=SECONDS,
        )

    def after_send(self, context: SendContext) -> None:
        labels = (context.outgoing.topic, context.queue.broker_name)
        if context.error is not None:
            self._failures.labels(*labels, type(context.error).__name__).inc()
            return
        self._messages.labels(*labels).inc(context.outgoing.count)
        self._bytes.labels(*labels).inc(len(context.outgoing.body))
        if not context.oneway:
            self._seconds.labels(*labels).observe(context.seconds)
