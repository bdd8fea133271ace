"""What shows how a broker is: metrics, slow requests, the watchdog, levels of log lines."""

from congreve.broker.admin.runtime_info import RuntimeInfo
from congreve.broker.config import BrokerConfig
from congreve.broker.figures.handler_times import HandlerTimes
from congreve.broker.figures.slow_requests import SlowRequests
from congreve.broker.log_levels import LogLevels
from congreve.broker.managers import Managers
from congreve.broker.metrics.service import MetricsService
from congreve.broker.quotas.quotas import Quotas
from congreve.broker.serving.message_paths import MessagePaths
from congreve.remoting.loop.periodic import Periodic
from congreve.remoting.loop.watchdog import Watchdog, logged_holds
from congreve.remoting.transport.guard import ConnectionGuard

SLOW_REQUESTS_S = 1


class Monitors:
    """Watches one broker from before its start until it has stopped (RocketMQ: none)."""

    def __init__(
        self, config: BrokerConfig, managers: Managers, guard: ConnectionGuard, quotas: Quotas
    ) -> None:
        self._config = config
        limit_ms = config.event_loop_watchdog_millis
        self._watchdog = Watchdog(limit_ms / 1000, logged_holds()) if limit_ms else None
        self.metrics = MetricsService(config, managers, guard, self._watchdog, quotas)
        limit_ms = config.slow_request_millis
        self.slow = SlowRequests(limit_ms / 1000) if limit_ms else None
        recorders = [] if self.slow is None else [self.slow.note]
        if config.metrics_port >= 0:
            recorders.append(self.metrics.rpc_times.note)
        self.handlers = HandlerTimes(recorders)
        """The times of the requests that have handlers."""
        self._log_levels = LogLevels()

    def set_log_levels(self) -> None:
        """Apply the setting `logLevels`. Raises ConfigError."""
        self._log_levels.apply(self._config.log_levels)

    def serve(self, paths: MessagePaths, runtime_info: RuntimeInfo) -> None:
        """Show all figures from now on: the broker serves clients."""
        if self._watchdog is not None:
            self._watchdog.start()
        self.metrics.serve(paths, runtime_info)

    def note_stopping(self) -> None:
        """Answer that the broker is not ready."""
        self.metrics.note_stopping()
        if self._watchdog is not None:
            self._watchdog.stop()

    async def close(self) -> None:
        """Close the metrics port, and restore the levels of log lines. Idempotent."""
        await self.metrics.close()
        self._log_levels.restore()

    def periodic(self) -> tuple[Periodic, ...]:
        """Logs slow requests while the broker runs."""
        return () if self.slow is None else (Periodic(SLOW_REQUESTS_S, self.slow.note_chunks),)
