"""One machine of a crossed pair: FOLDER HOST OTHER PORT NAMESRV_PORT [KEY=VALUE]..."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import congreve


def main() -> None:
    """Run a name server, a master and the other machine's slave until SIGTERM."""
    folder, host, other, port, namesrv_port, *settings = sys.argv[1:]
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    node = congreve.serve(
        Path(folder),
        namesrv_port=int(namesrv_port),
        bindAddress=host,
        listenPort=port,
        pairAddress=other,
        **dict(setting.split("=", 1) for setting in settings),
    )
    with node:
        signal.sigwait([signal.SIGTERM])


if __name__ == "__main__":
    main()
