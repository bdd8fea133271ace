"""``python -m secured``: sends with signatures and over TLS, ours and RocketMQ's in turns.

    PYTHONPATH=bench:tests python -m secured

Four brokers run: ours and RocketMQ 4.9.4, each once without access control, which serve plain
connections and TLS, and once with it. The table has the medians of the rounds.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import click
import msgspec
from harness.certificates import Authority
from sidebyside.before import Turn, measured
from sidebyside.brokers import KINDS, Running, running

from congreve.console.loadgen.generator import Load

ACCOUNT, SECRET = "benchmark", "secret of it"
ACCOUNTS = f"""accounts:
- accessKey: {ACCOUNT}
  secretKey: {SECRET}
  defaultTopicPerm: PUB|SUB
"""
LOADS = {"4 x 32": Load(connections=4, inflight=32), "500 x 1": Load(connections=500, inflight=1)}
PLAIN, SIGNED, ENCRYPTED = "plain", "signed", "TLS"
WARMUP_S = 20.0
"""RocketMQ is under load for that long before the first round."""


def secured(load: Load, way: str) -> Load:
    """The load, with an account's signatures or over TLS."""
    if way == SIGNED:
        return msgspec.structs.replace(load, access_key=ACCOUNT, secret_key=SECRET)
    return msgspec.structs.replace(load, tls=way == ENCRYPTED)


def require_accounts(broker: Running) -> None:
    """Restart the broker with access control."""
    folder = broker.server.folder
    home = folder if broker.kind == "congreve" else folder / "home" / "conf"
    (home / "plain_acl.yml").write_text(ACCOUNTS)
    broker.restart(aclEnable="true", aclOpenNameServers="true")


def started(stack: ExitStack, folder: Path, certificates: Path) -> dict[tuple[str, str], Running]:
    """The four brokers, by kind and by how clients reach them."""
    found = {}
    for kind in KINDS:
        for way in (PLAIN, SIGNED):
            own = {"tlsConfigFile": str(certificates)}
            store = folder / f"{kind}-{way}"
            broker = stack.enter_context(
                running(kind, store, flush="ASYNC_FLUSH", own=own, pretouch=False)
            )
            broker.create_topics(Load())
            if way == SIGNED:
                require_accounts(broker)
            else:
                found[kind, ENCRYPTED] = broker
            found[kind, way] = broker
    return found


def properties(folder: Path) -> Path:
    """The settings of a server that accepts plain connections and TLS."""
    certificate, key = Authority(folder).issue("server")
    path = folder / "tls.properties"
    path.write_text(
        "tls.server.mode=permissive\ntls.test.mode.enable=false\n"
        f"tls.server.certPath={certificate}\ntls.server.keyPath={key}\n"
    )
    return path


@click.command()
@click.option("--rounds", default=3, show_default=True)
@click.option("--seconds", default=3.0, show_default=True)
def main(rounds: int, seconds: float) -> None:
    """Rates and CPU of plain, signed and encrypted sends."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        brokers = started(stack, folder, properties(folder))
        for way in (PLAIN, SIGNED, ENCRYPTED):
            load = msgspec.structs.replace(LOADS["4 x 32"], warmup=0.0, duration=WARMUP_S)
            measured(brokers["java", way], secured(load, way))
        for title, load in LOADS.items():
            timed = msgspec.structs.replace(load, warmup=1.0, duration=seconds)
            turns: dict[tuple[str, str], list[Turn]] = {key: [] for key in brokers}
            for _ in range(rounds):
                for key, broker in brokers.items():
                    turns[key].append(measured(broker, secured(timed, key[1])))
            report(title, turns)


def report(title: str, turns: dict[tuple[str, str], list[Turn]]) -> None:
    """Print one load's table; the ratios are medians of the rounds' ratios."""

    def ratio(one: tuple[str, str], other: tuple[str, str], figure: str) -> float:
        pairs = zip(turns[one], turns[other], strict=True)
        return median(getattr(a, figure) / getattr(b, figure) for a, b in pairs)

    click.echo(f"{title}, 128 bytes")
    for (kind, way), found in turns.items():
        rate, spent = (median(t.rate for t in found), median(t.cpu_us for t in found))
        click.echo(
            f"  {kind:9} {way:7} {rate:12,.0f} msg/s {spent:8.2f} us a message"
            f"  to its plain sends: rate {ratio((kind, way), (kind, PLAIN), 'rate'):5.2f},"
            f" CPU {ratio((kind, way), (kind, PLAIN), 'cpu_us'):5.2f}"
            f"  to RocketMQ's: rate {ratio((kind, way), ('java', way), 'rate'):6.2f}"
        )


if __name__ == "__main__":
    main()
