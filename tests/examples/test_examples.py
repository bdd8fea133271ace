"""Every program of examples/ runs, in a folder of its own, and prints what it should."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from harness import build

import congreve

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
TIMEOUT_S = 300
QUICK_JAVA = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
"""No JVM of these tests lives long enough to be worth its better compiler."""
PRINTS = {
    "analyse_store": "verified 10,000 records: 0 problems",
    "arrow_batches": "received 10000 rows",
    "async_clients": "received 100 messages",
    "celery_tasks": "sent 3 messages",
    "broker_conf": "no effect here: useEpollNativeSelector\nstored at offset 0 by broker a",
    "delayed_messages": "level 1: after 1",
    "embed": "hello",
    "fastapi_app": "order 7 is message 0 of a queue of orders",
    "filters": "price 500",
    "once_in_database": "3 messages consumed once, total 60",
    "query_table": "pyiceberg: 500 paid orders\nDuckDB: new 500 messages, 3390 bytes",
    "request_reply": "HELLO",
    "share_consumer": "10 jobs done by 3 workers, 1 of them twice",
    "sync_clients": "received 100 messages",
    "transactions": "order-2: ROLLBACK\nto be shipped: order-1",
    "tune_disk": "log written by: ",
}
SPARK = {
    "spark_batch": "3 messages read from the broker",
    "spark_stream": "1000 rows written",
}
NEEDS_ARROW = {"analyse_store", "arrow_batches"}
# Both in one process: a JVM takes longer to start than either of them.
RUN_SPARK = "import runpy, sys; [runpy.run_path(path) for path in sys.argv[1:]]"


def run(folder: Path, *command: str) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "HOME": str(folder), "JAVA_TOOL_OPTIONS": QUICK_JAVA},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_example_is_run() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == PRINTS.keys() | SPARK.keys()


@pytest.mark.parametrize("name", PRINTS)
def test_each_example_prints_the_expected_lines(name: str, tmp_path: Path) -> None:
    if name in NEEDS_ARROW:
        pytest.importorskip("pyarrow")
    if name == "query_table":
        pytest.importorskip("pyiceberg")
    assert PRINTS[name] in run(tmp_path, sys.executable, str(EXAMPLES / f"{name}.py"))


def test_the_spark_examples_print_the_expected_lines(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    if missing := build.missing_tools("java"):
        pytest.skip(f"not installed: {', '.join(missing)}")
    paths = [str(EXAMPLES / f"{name}.py") for name in SPARK]
    printed = run(tmp_path, sys.executable, "-c", RUN_SPARK, *paths)
    for text in SPARK.values():
        assert text in printed


@pytest.mark.interop
def test_the_example_of_the_java_client_prints_the_expected_lines(tmp_path: Path) -> None:
    if missing := build.missing_tools("java", "mvn"):
        pytest.skip(f"not installed: {', '.join(missing)}")
    program = str(EXAMPLES / "java" / "SendReceive.java")
    with congreve.serve(tmp_path / "data", flushDiskType="ASYNC_FLUSH") as node:
        java = ["java", "-Drocketmq.client.logUseSlf4j=true", "-cp", build.classpath()]
        printed = run(tmp_path, *java, program, node.address)
    assert "hello from Java" in printed


def test_the_example_of_the_readme_has_ten_lines_at_most() -> None:
    text = (EXAMPLES / "embed.py").read_text()
    program = text[text.index("import congreve") :]
    assert len(text.splitlines()) <= 10
    for page in ("README.md", "docs/embedding.md"):
        shown = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.M | re.S)
        assert program in shown, page


def test_the_programs_of_the_page_on_embedding_run(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    settings = "listenPort=0\nbrokerIP1=127.0.0.1\nstorePathRootDir=store\n"
    (tmp_path / "broker.conf").write_text(settings)
    page = (ROOT / "docs" / "embedding.md").read_text()
    programs = re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)
    assert len(programs) == 3
    assert "hello" in run(tmp_path, sys.executable, "-c", "".join(programs))


def test_the_examples_pass_a_strict_type_check() -> None:
    programs = sorted(map(str, EXAMPLES.glob("*.py")))
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", *programs],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
