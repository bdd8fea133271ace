"""Tables in S3, with a REST catalog: the same promises, also when a commit's answer is lost."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from moto.server import ThreadedMotoServer
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog

from congreve.lake.durable import SCHEMA, DurableTopic
from congreve.lake.errors import TableError
from congreve.lake.export import Exporter
from congreve.lake.table import TopicTable, open_catalog
from congreve.lake.upkeep import Upkeep, UpkeepRules

from .. import stores
from .rest_catalog import RestCatalog, served

BUCKET = "s3://lake/warehouse"


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """pyiceberg's properties of an S3 server with a bucket."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    properties = {
        "s3.endpoint": f"http://{host}:{port}",
        "s3.access-key-id": "key",
        "s3.secret-access-key": "secret",
        "s3.region": "us-east-1",
    }
    boto3.client(
        "s3",
        endpoint_url=properties["s3.endpoint"],
        aws_access_key_id="key",
        aws_secret_access_key="secret",
        region_name="us-east-1",
    ).create_bucket(Bucket="lake")
    yield properties
    server.stop()


def exporter(store: Path, catalog: Catalog, commit_bytes: int = 1) -> Exporter:
    table = TopicTable(catalog, "rocketmq.T", SCHEMA, "day")
    return Exporter(DurableTopic(store, stores.TOPIC, "broker-a"), table, commit_bytes)


def rows(catalog: Catalog) -> list[stores.Row]:
    return stores.rows_of(catalog.load_table("rocketmq.T"))


def test_a_topic_becomes_a_table_in_s3_with_upkeep(tmp_path: Path, s3: dict[str, str]) -> None:
    store = stores.write(tmp_path / "store", 60)
    catalog = open_catalog(BUCKET, f"sqlite:///{tmp_path}/catalog.db", s3)
    assert exporter(store, catalog).run() == 60
    assert rows(catalog) == stores.in_store(store)
    rules = UpkeepRules(keep_snapshots=1, snapshot_age_s=0, orphan_age_s=0)
    table = TopicTable(catalog, "rocketmq.T", SCHEMA, "day")
    done = Upkeep(table, rules, lambda: time.time() + 3600).run()
    assert done.merged > done.into >= 1 and done.expired >= 3 and done.removed >= done.merged
    assert rows(catalog) == stores.in_store(store)
    assert exporter(store, catalog).run() == 0


def test_a_rest_catalog_and_s3_serve_the_command(tmp_path: Path, s3: dict[str, str]) -> None:
    store = stores.write(tmp_path / "store", 20)
    behind = SqlCatalog("behind", uri=f"sqlite:///{tmp_path}/c.db", warehouse=BUCKET, **s3)
    with served(RestCatalog(behind)) as url:
        options = [part for pair in s3.items() for part in ("--property", "=".join(pair))]
        process = stores.command(store, BUCKET, "--catalog", url, *options)
        output = process.communicate()[0]
        assert process.returncode == 0, output
        assert rows(behind) == stores.in_store(store)


def test_a_commit_whose_answer_is_lost_is_not_repeated(tmp_path: Path) -> None:
    store = stores.write(tmp_path / "store", 40)
    warehouse = (tmp_path / "lake").as_uri()
    behind = SqlCatalog("behind", uri=f"sqlite:///{tmp_path}/c.db", warehouse=warehouse)
    rest = RestCatalog(behind)
    with served(rest) as url:
        export = exporter(store, open_catalog(warehouse, url))
        export.table.create()
        rest.lose_answers = 1
        with pytest.raises(TableError, match="the catalog failed"):
            export.run()
        assert len(rows(behind)) == 10, "the commit was done"
        assert exporter(store, open_catalog(warehouse, url)).run() == 30
    assert rows(behind) == stores.in_store(store)


def test_two_exporters_of_a_rest_catalog_add_each_message_once(tmp_path: Path) -> None:
    store = stores.write(tmp_path / "store", 60)
    warehouse = (tmp_path / "lake").as_uri()
    behind = SqlCatalog("behind", uri=f"sqlite:///{tmp_path}/c.db", warehouse=warehouse)
    with served(RestCatalog(behind)) as url:
        one, other = (exporter(store, open_catalog(warehouse, url)) for _ in range(2))
        steps = one.commits()
        added = next(steps)
        added += next(other.commits())
        assert added + sum(steps) == 60
    assert rows(behind) == stores.in_store(store)


def test_the_error_for_an_unreachable_catalog_names_it(tmp_path: Path) -> None:
    store = stores.write(tmp_path / "store", 4)
    behind = SqlCatalog("behind", uri=f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path))
    with served(RestCatalog(behind)) as url:
        export = exporter(store, open_catalog(str(tmp_path), url))
    with pytest.raises(TableError, match=r"the catalog failed for table rocketmq\.T"):
        export.run()
    with pytest.raises(TableError, match=f"the catalog {url} failed"):
        open_catalog(str(tmp_path), url)
