"""A small REST catalog: pyiceberg's SQL catalog behind the requests of Iceberg's REST protocol.

``python rest_catalog.py PORT URI WAREHOUSE`` serves one in a process of its own.
"""

from __future__ import annotations

import json
import re
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableRequest, StagedTable, Table
from pyiceberg.table.sorting import SortOrder

TABLES = re.compile(r"/v1/namespaces/([^/]+)/tables(?:/([^/]+))?$")
STATUS = {
    CommitFailedException: 409,
    NamespaceAlreadyExistsError: 409,
    TableAlreadyExistsError: 409,
    NoSuchTableError: 404,
}


class RestCatalog:
    """The server's state. The next `lose_answers` commits are carried out and answered with 500, as
    if the catalog were killed in between."""

    def __init__(self, catalog: SqlCatalog) -> None:
        self._catalog = catalog
        self._lock = threading.Lock()
        self.lose_answers = 0

    def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Status and body of one request."""
        with self._lock:
            try:
                return self._answer(method, path, body)
            except tuple(STATUS) as error:
                text = {"message": str(error), "type": type(error).__name__}
                return STATUS[type(error)], {"error": {**text, "code": STATUS[type(error)]}}

    def _answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if path == "/v1/config":
            return 200, {"defaults": {}, "overrides": {}}
        if path == "/v1/namespaces" and method == "POST":
            self._catalog.create_namespace(tuple(body["namespace"]))
            return 200, {"namespace": body["namespace"], "properties": {}}
        found = TABLES.match(path)
        if found is None:
            return 404, {"error": {"message": path, "type": "NotFound", "code": 404}}
        namespace, name = found.groups()
        if method == "GET":
            return 200, _loaded(self._catalog.load_table((namespace, name)))
        if name is None:
            return 200, _loaded(self._created(namespace, body))
        done = self._commit((namespace, name), CommitTableRequest.model_validate(body))
        if self.lose_answers:
            self.lose_answers -= 1
            return 500, {"error": {"message": "killed", "type": "ServerError", "code": 500}}
        return 200, done

    def _created(self, namespace: str, body: dict[str, Any]) -> Table:
        settings = {
            "schema": Schema.model_validate(body["schema"]),
            "partition_spec": PartitionSpec.model_validate(body["partition-spec"]),
            "sort_order": SortOrder.model_validate(body["write-order"]),
            "properties": body["properties"],
        }
        identifier = (namespace, body["name"])
        if body["stage-create"]:
            return self._catalog.create_table_transaction(identifier, **settings)._table
        return self._catalog.create_table(identifier, **settings)

    def _commit(self, identifier: tuple[str, str], request: CommitTableRequest) -> dict[str, Any]:
        try:
            table = self._catalog.load_table(identifier)
        except NoSuchTableError:
            schema = next(u for u in request.updates if u.action == "add-schema").schema_
            staged = self._catalog.create_table_transaction(identifier, schema)._table
            assert isinstance(staged, StagedTable)
            table = staged
        done = self._catalog.commit_table(table, request.requirements, request.updates)
        return json.loads(done.model_dump_json())


def _loaded(table: Table) -> dict[str, Any]:
    return {
        "metadata-location": table.metadata_location,
        "metadata": json.loads(table.metadata.model_dump_json()),
        "config": {},
    }


@contextmanager
def served(catalog: RestCatalog, port: int = 0) -> Iterator[str]:
    """The catalog at a URL of 127.0.0.1."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or b"{}")
            status, answer = catalog.answer(self.command, self.path.split("?")[0], body)
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        do_GET = do_POST = do_HEAD = _serve  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Write no log."""

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def main(port: str, uri: str, warehouse: str) -> None:
    """Serve until a signal."""
    with served(RestCatalog(SqlCatalog("congreve", uri=uri, warehouse=warehouse)), int(port)):
        signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
