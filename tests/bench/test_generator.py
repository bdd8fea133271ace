"""The load generator's requests, read by a JSON parser, and its counts with misbehaving servers."""

import json
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
import pytest

from congreve.console.loadgen import generator
from congreve.console.loadgen.generator import Load
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.signature import is_signed

Frame = tuple[dict, bytes]
Answer = Callable[[int, dict], bytes]


def frame(header: dict, body: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return struct.pack(">II", 4 + len(text) + len(body), len(text)) + text + body


def success(_: int, request: dict) -> bytes:
    return frame({"code": 0, "flag": 1, "opaque": request["opaque"]})


@contextmanager
def server(answer: Answer) -> Iterator[tuple[int, list[Frame]]]:
    """Answer each request of one connection with `answer(number, header)`."""
    frames: list[Frame] = []

    def serve(listener: socket.socket) -> None:
        with listener.accept()[0] as peer, peer.makefile("rb") as stream:
            while size := stream.read(4):
                data = stream.read(int.from_bytes(size))
                header_size = int.from_bytes(data[:4])
                header = json.loads(data[4 : 4 + header_size])
                frames.append((header, data[4 + header_size :]))
                peer.sendall(answer(len(frames), header))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        yield listener.getsockname()[1], frames
        thread.join(10)


def properties(text: str) -> dict[str, str]:
    return dict(entry.split("\x01") for entry in text.split("\x02"))


def test_sends_equal_those_of_a_java_client() -> None:
    with server(success) as (port, frames):
        generator.run(port, Load(connections=1, inflight=3, queues=4, size=128, count=50))
    assert [header["code"] for header, _ in frames] == [310] * 50
    assert {header["extFields"]["e"] for header, _ in frames} == {"0", "1", "2", "3"}
    assert len({header["opaque"] for header, _ in frames}) == 50
    assert {len(body) for _, body in frames} == {128}
    found = [properties(header["extFields"]["i"]) for header, _ in frames]
    assert {(p["TAGS"], p["WAIT"]) for p in found} == {("TagA", "true")}
    assert len({p["UNIQ_KEY"] for p in found}) == 50


def test_sends_are_spread_over_topics_and_queues() -> None:
    with server(success) as (port, frames):
        load = Load(connections=1, topic="t", topics=3, queues=2, count=12)
        generator.run(port, load)
    targets = [(h["extFields"]["b"], h["extFields"]["e"]) for h, _ in frames]
    assert sorted(targets) == sorted(
        2 * [(f"t-{topic:04d}", str(queue)) for topic in range(3) for queue in range(2)]
    )


def test_every_message_of_a_batch_has_its_own_key() -> None:
    with server(success) as (port, frames):
        found = generator.run(port, Load(connections=1, batch=4, size=10, count=5))
    keys = set()
    for header, body in frames:
        assert (header["code"], header["extFields"]["m"]) == (320, "true")
        at = 0
        while at < len(body):
            size, magic, crc, flag, length = struct.unpack_from(">5i", body, at)
            assert (magic, crc, flag, length) == (0, 0, 0, 10)
            (property_size,) = struct.unpack_from(">h", body, at + 20 + length)
            text = body[at + 22 + length : at + size]
            assert len(text) == property_size
            keys.add(properties(text.decode())["UNIQ_KEY"])
            at += size
    assert len(keys) == found.messages == 20


def test_errors_are_not_counted_as_messages() -> None:
    def busy_each_fourth(number: int, request: dict) -> bytes:
        code = 2 if number % 4 == 0 else 0
        return frame({"code": code, "flag": 1, "opaque": request["opaque"], "remark": "busy"})

    with server(busy_each_fourth) as (port, _):
        found = generator.run(port, Load(connections=1, inflight=1, count=40))
    assert (found.messages, found.errors, found.failures) == (30, {"2": 10}, 10)
    assert sum(count for _, count in found.latency) == 40


def test_a_server_that_closes_the_connection_is_an_error() -> None:
    with (
        server(lambda number, request: struct.pack(">I", 1 << 31)) as (port, _),
        pytest.raises(generator.GeneratorError, match="frame of"),
    ):
        generator.run(port, Load(connections=1, inflight=1, count=4))


def record(offset: int, size: int = 100) -> bytes:
    head = struct.pack(">IIIIIqq", size, 0xDAA320A7, 0, 0, 0, offset, offset * size)
    return head + bytes(size - len(head))


def test_a_pull_follows_the_offsets_of_the_response() -> None:
    def three_at_a_time(_: int, request: dict) -> bytes:
        start = int(request["extFields"]["queueOffset"])
        count = min(3, 10 - start)
        fields = {"nextBeginOffset": str(start + count), "minOffset": "0", "maxOffset": "10"}
        body = b"".join(record(start + n) for n in range(count))
        header = {"code": 0, "flag": 1, "opaque": request["opaque"], "extFields": fields}
        return frame(header, body)

    with server(three_at_a_time) as (port, frames):
        load = Load(mode="pull", connections=1, inflight=1, queues=1, batch=32, count=8)
        found = generator.run(port, load)
    offsets = [int(header["extFields"]["queueOffset"]) for header, _ in frames]
    assert offsets == [0, 3, 6, 9, 0, 3, 6, 9]
    assert (found.messages, found.bytes, found.failures) == (20, 2000, 0)


def test_records_that_are_missing_in_a_pull_are_an_error() -> None:
    def gap(_: int, request: dict) -> bytes:
        fields = {"nextBeginOffset": "2", "minOffset": "0", "maxOffset": "9"}
        header = {"code": 0, "flag": 1, "opaque": request["opaque"], "extFields": fields}
        return frame(header, record(0) + record(2))

    with server(gap) as (port, _):
        load = Load(mode="pull", connections=1, inflight=1, queues=1, batch=2, count=5)
        found = generator.run(port, load)
    assert (found.messages, found.broken) == (0, 5)


@pytest.mark.parametrize("binary", [False, True], ids=["json", "binary"])
@pytest.mark.parametrize("batch", [1, 32])
def test_all_requests_are_answered_by_the_sink(binary: bool, batch: int) -> None:
    with generator.sink() as (port, _):
        found = generator.run(port, Load(count=5_000, batch=batch, binary=binary))
    assert (found.requests, found.messages, found.failures) == (5_000, 5_000 * batch, 0)
    assert sum(count for _, count in found.latency) == 5_000
    low, middle, high = found.percentiles_ms(0, 50, 100)
    assert 0 < low <= middle <= high


def test_a_transaction_is_a_half_message_and_its_commit() -> None:
    def answer(number: int, request: dict) -> bytes:
        fields = {"queueOffset": str(number), "msgId": f"7F00000100002A9F{number:016X}"}
        return frame({"code": 0, "flag": 1, "opaque": request["opaque"], "extFields": fields})

    with server(answer) as (port, frames):
        load = Load(connections=1, inflight=2, queues=1, count=20, transaction=True)
        found = generator.run(port, load)
    assert (found.all_messages, found.failures) == (20, 0)
    halves = {n: h for n, (h, _) in enumerate(frames, 1) if h["code"] == 310}
    ends = [header for header, _ in frames if header["code"] == 37]
    assert len(halves) == len(ends) == 20
    assert {half["extFields"]["f"] for half in halves.values()} == {"4"}
    stored = [properties(half["extFields"]["i"]) for half in halves.values()]
    assert {(p["TRAN_MSG"], p["PGROUP"]) for p in stored} == {("true", "loadgen")}
    ended = [header["extFields"] for header in ends]
    assert {e["commitOrRollback"] for e in ended} == {"8"}
    assert sorted(int(e["tranStateTableOffset"]) for e in ended) == sorted(halves)
    assert all(e["commitLogOffset"] == e["tranStateTableOffset"] for e in ended)


def test_messages_with_deliver_times_are_spread_over_the_span() -> None:
    with server(success) as (port, frames):
        generator.run(port, Load(connections=1, count=200, deliver_within=86_400))
    waits = []
    for header, _ in frames:
        due = properties(header["extFields"]["i"])["TIMER_DELIVER_MS"]
        waits.append(int(due) - int(header["extFields"]["g"]) - 600_000)
    assert len(set(waits)) > 190
    assert 0 <= min(waits) < 10_000_000
    assert 70_000_000 < max(waits) < 86_400_000


@pytest.mark.parametrize("load", [Load(), Load(batch=3), Load(mode="pull", batch=32)])
def test_an_account_signs_each_request(load: Load) -> None:
    account = {"access_key": "generator", "secret_key": "its-secret"}
    signed = msgspec.structs.replace(load, connections=1, inflight=1, count=20, **account)
    with server(success) as (port, frames):
        generator.run(port, signed)
    assert len(frames) == 20
    for header, body in frames:
        fields = header["extFields"]
        assert fields["AccessKey"] == "generator"
        request = RemotingCommand(code=header["code"], ext_fields=fields, body=body)
        assert is_signed(request, "its-secret")


def test_an_end_without_a_word_is_an_error_with_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generator, "COMMAND", (sys.executable, "-c", "exit(3)"))
    with pytest.raises(generator.GeneratorError, match="ended with code 3"):
        generator.run(1, generator.Load())


def test_a_server_that_does_not_answer_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generator, "COMMAND", (sys.executable, "-c", "import time; time.sleep(60)"))
    monkeypatch.setattr(generator, "DRAIN_S", 0.1)
    with pytest.raises(generator.GeneratorError, match="did not answer"):
        generator.run(1, generator.Load(warmup=0, duration=0.1))


def test_an_open_loop_counts_from_when_a_request_was_due() -> None:
    """A closed loop would see one slow answer; here all that were due meanwhile are late."""

    def stalls_once(number: int, request: dict) -> bytes:
        if number == 50:
            time.sleep(0.5)
        return success(number, request)

    with server(stalls_once) as (port, frames):
        load = Load(connections=1, inflight=4, rate=200, warmup=0, duration=1)
        result = generator.run(port, load)
    assert len(frames) == result.requests == 200
    assert result.failures == 0
    late = sum(count for value, count in result.latency if value > 0.2 * 1e9)
    assert 50 <= late <= 100


def test_an_open_loop_keeps_its_rate_over_many_connections() -> None:
    with generator.sink() as (port, _):
        load = Load(connections=50, inflight=2, rate=5000, warmup=0.2, duration=1)
        result = generator.run(port, load)
    assert result.failures == 0
    assert result.requests == 5000
    assert result.all_requests == 6000


@pytest.mark.slow
def test_an_open_loop_says_what_was_never_answered() -> None:
    def answers_ten(number: int, request: dict) -> bytes:
        return success(number, request) if number <= 10 else b""

    with server(answers_ten) as (port, _):
        load = Load(connections=1, inflight=4, rate=100, warmup=0, duration=0.2)
        result = generator.run(port, load)
    assert result.requests == 10
    assert result.broken == 10


def test_a_rate_and_a_count_exclude_each_other() -> None:
    with pytest.raises(generator.GeneratorError, match="usage"):
        generator.run(1, Load(rate=1, count=1))
