"""Prometheus metrics of producers and consumers (``congreve[prometheus]``)."""

from typing import TYPE_CHECKING

from prometheus_client import REGISTRY, Counter, Histogram

from congreve.client.hooks import SendContext, SendHook

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 3.0)


class PrometheusHook(SendHook):
    """Metrics of all producers that use this hook, by topic and broker.

    ``congreve_client_sent_messages_total`` and ``..._sent_bytes_total`` count stored messages,
    ``congreve_client_send_failures_total`` failed attempts by error;
    ``congreve_client_send_seconds`` is a histogram of attempts.
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
        """Count an attempt."""
        labels = (context.outgoing.topic, context.queue.broker_name)
        if context.error is not None:
            self._failures.labels(*labels, type(context.error).__name__).inc()
            return
        self._messages.labels(*labels).inc(context.outgoing.count)
        self._bytes.labels(*labels).inc(len(context.outgoing.body))
        if not context.oneway:
            self._seconds.labels(*labels).observe(context.seconds)


class PrometheusConsumerMetrics:
    """Metrics by topic of all consumers whose `metrics` is this object.

    ``congreve_client_pulled_messages_total``, ``congreve_client_consumed_messages_total`` by
    outcome (``ok``, ``failed``), ``congreve_client_pull_seconds`` and
    ``congreve_client_consume_seconds_total`` of listeners.
    """

    def __init__(self, registry: "CollectorRegistry" = REGISTRY) -> None:
        labels = ("topic",)
        self._pulled = Counter(
            "congreve_client_pulled_messages", "Messages pulled", labels, registry=registry
        )
        self._consumed = Counter(
            "congreve_client_consumed_messages",
            "Messages passed to listeners",
            (*labels, "outcome"),
            registry=registry,
        )
        self._pull_seconds = Histogram(
            "congreve_client_pull_seconds",
            "From a pull to its answer",
            labels,
            registry=registry,
            buckets=SECONDS,
        )
        self._consume_seconds = Counter(
            "congreve_client_consume_seconds", "Time in listeners", labels, registry=registry
        )

    def pulled(self, topic: str, messages: int, seconds: float) -> None:
        """See ConsumerMetrics.pulled()."""
        self._pulled.labels(topic).inc(messages)
        self._pull_seconds.labels(topic).observe(seconds)

    def consumed(self, topic: str, succeeded: int, failed: int, seconds: float) -> None:
        """See ConsumerMetrics.consumed()."""
        self._consumed.labels(topic, "ok").inc(succeeded)
        self._consumed.labels(topic, "failed").inc(failed)
        self._consume_seconds.labels(topic).inc(seconds)
