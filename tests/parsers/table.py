"""Every parser of bytes or text from outside: a peer, a file, a configuration."""

from __future__ import annotations

from . import bodies, console, files, grpc, messages, replication, settings, streams, wire
from .parser import Parser

SEED_NUMBER = 2026

PARSERS: list[Parser] = [
    *wire.parsers(),
    *messages.parsers(),
    *settings.parsers(),
    *files.parsers(),
    *replication.parsers(),
    *streams.parsers(),
    *console.parsers(),
    *bodies.parsers(),
    *grpc.parsers(),
]

_BYTES_OF_STORE = "tests/engine and tests/crash damage each byte and bit of its files"
_HANDS_ON = "hands whole frames or bodies to parsers of the table"
_NO_PARSER = "reads what this process or its user wrote"
_COORDINATOR = "reads answers of the coordinator that broker.conf names"

ELSEWHERE: dict[str, str] = {
    "broker/pop/lanes/lost_pops.pyx": "reads what lanes have written",
    "broker/pop/lanes/pops.pyx": "reads records that Gather has checked",
    "broker/pop/lanes/retried.pyx": "reads records that Gather has checked",
    "broker/pull/progress.py": "reads what lanes have written",
    "broker/pull/pull_quota.py": _HANDS_ON,
    "remoting/lanes/lanes.py": "reads what lanes have written",
    "remoting/lanes/call.py": "reads what lanes have written",
    "lake/progress.py": "reads what the exporter has written",
    "records/columns/arrays.py": "reads columns that this program has built",
    "console/contexts.py": _NO_PARSER,
    "console/daemon/broker_conf.py": _NO_PARSER,
    "console/store_backup.py": _NO_PARSER,
    "records/filter/kinds.py": _HANDS_ON,
    "lake/durable.py": "reads columns that this program has built",
    "broker/pull/archived_pulls.py": "reads columns that this program has built",
    "records/columns/stored.py": "reads columns that this program has built",
    "broker/accounts/access_control.py": _HANDS_ON,
    "broker/assembly/access.py": _HANDS_ON,
    "broker/delay/recalls.py": _HANDS_ON,
    "broker/delay/service.py": _HANDS_ON,
    "broker/replication/slave_synchronize.py": _HANDS_ON,
    "lake/upkeep.py": _NO_PARSER,
    "remoting/tls/openssl.py": "reads answers of OpenSSL",
    "remoting/tls/settings.py": _HANDS_ON,
    "broker/election/epoch_log.py": "reads files that this broker has written",
    "broker/election/etcd.py": _COORDINATOR,
    "broker/election/json_http.py": _COORDINATOR,
    "broker/election/kubernetes.py": _COORDINATOR,
    "client/admin/resent.py": _NO_PARSER,
    "console/loadgen/generator.py": "reads what its own program prints",
    "console/tune/command.py": _HANDS_ON,
    "lake/export.py": _HANDS_ON,
    "lake/table.py": _NO_PARSER,
    "lake/bodies/body_schema.py": _NO_PARSER,
    "lake/bodies/body_table.py": _NO_PARSER,
    "broker/metadata/state_files.py": _HANDS_ON,
    "broker/metadata/state_writer.py": "reads what it has just written",
    "broker/metadata/table_text.py": "reads what it is about to write",
    "broker/commit/recode.py": "splits answers that this broker wrote",
    "broker/serving/fastpath.pyx": "tests/broker/serving/test_fastpath.py",
    "broker/serving/message_paths.py": _HANDS_ON,
    "broker/pull/unreadable_pulls.py": _HANDS_ON,
    "broker/pull/processor.py": _HANDS_ON,
    "broker/pop/redelivery.py": _HANDS_ON,
    "broker/transaction/fast.pyx": "tests/broker/transaction/test_fast.py",
    "client/pull/bulk_reader.py": _HANDS_ON,
    "client/producer/columns.py": _NO_PARSER,
    "client/consumer/rebalance.py": "reads a digest of its own",
    "console/daemon/serve.py": _HANDS_ON,
    "engine/log/commit_log.pyx": _BYTES_OF_STORE,
    "engine/queue/consume_queue.pyx": _BYTES_OF_STORE,
    "engine/queue/queue_entries.pyx": _BYTES_OF_STORE,
    "engine/index/index.pyx": _BYTES_OF_STORE,
    "engine/index/index_file.pyx": _BYTES_OF_STORE,
    "engine/index/index_files.pyx": _BYTES_OF_STORE,
    "engine/index/state.py": _BYTES_OF_STORE,
    "engine/state/lock.py": "reads an answer of the kernel",
    "engine/queue/queue_table.py": _BYTES_OF_STORE,
    "engine/recovery/repair.py": _BYTES_OF_STORE,
    "engine/recovery/recovery.py": _BYTES_OF_STORE,
    "engine/log/batch_entries.pyx": _BYTES_OF_STORE,
    "engine/read/gather.pyx": _BYTES_OF_STORE,
    "engine/timer/deliveries.pyx": _BYTES_OF_STORE,
    "engine/timer/redelivery.pyx": _BYTES_OF_STORE,
    "io_backends/mapping.pyx": _BYTES_OF_STORE,
    "namesrv/settings_processor.py": _HANDS_ON,
    "records/batches/batch.pyx": "an encoder",
    "remoting/signatures/hmac_sha1.pyx": "reads its own digest",
    "remoting/transport/blocking_client.py": _HANDS_ON,
    "remoting/transport/connection.py": _HANDS_ON,
    "remoting/transport/read_buffer.py": _HANDS_ON,
    "spark/batch.py": _HANDS_ON,
    "spark/sources/key_index.py": _BYTES_OF_STORE,
    "spark/sink.py": _NO_PARSER,
    "spark/sources/store_source.py": _HANDS_ON,
}
"""Modules that look like parsers but are none, or that other entries cover, with the reason."""
