"""``congreve bench`` against brokers of both kinds: what it counts is what they stored."""

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

from harness.cluster import Cluster
from harness.wire import GET_MAX_OFFSET, Wire

KINDS = ("congreve", "java")
QUEUES = 2


def bench(cluster: Cluster, topic: str, *options: str) -> dict[str, float]:
    """The command's figures."""
    command = [sys.executable, "-m", "congreve", "bench", "-n", cluster.namesrv.address]
    command += ["-t", topic, "--queues", str(QUEUES), "--warmup", "0", "--output", "json"]
    done = subprocess.run(
        [*command, *options], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    (figures,) = json.loads(done.stdout)
    return dict(figures)


def test_sends_and_pulls_are_counted(cluster: Cluster, tmp_path: Path) -> None:
    topic = f"bench-{uuid.uuid4().hex[:8]}"
    hdr, png = tmp_path / "sends.hgrm", tmp_path / "sends.png"
    load = ["--seconds", "0.5", "--connections", "2", "--inflight", "4"]
    sent = bench(cluster, topic, *load, "--hdr", str(hdr), "--png", str(png))
    with Wire(cluster.broker.address) as wire:
        stored = sum(
            int(wire.call(GET_MAX_OFFSET, {"topic": topic, "queueId": str(queue)}).fields["offset"])
            for queue in range(QUEUES)
        )
    assert sent["failed"] == 0
    assert 0 < sent["messages_per_second"] * 0.5 <= stored + 1
    assert 0 < sent["p50_ms"] <= sent["p99_ms"] <= sent["p100_ms"]
    assert "1/(1-Percentile)" in hdr.read_text()
    assert png.read_bytes().startswith(b"\x89PNG")
    pulled = bench(cluster, topic, "--mode", "pull", *load)
    assert pulled["failed"] == 0 and pulled["messages_per_second"] > 0


def test_the_bench_command_reads_the_secret_from_the_environment(cluster: Cluster) -> None:
    environment = {key: value for key, value in os.environ.items() if "SECRET" not in key}
    command = [sys.executable, "-m", "congreve", "bench", "-n", cluster.namesrv.address]
    done = subprocess.run(
        [*command, "--access-key", "someone"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment,
    )
    assert done.returncode == 2
    assert "CONGREVE_SECRET_KEY" in done.stderr
