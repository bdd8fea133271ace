"""Topics with attributes."""

import pytest

import congreve
from congreve.client import AdminClient
from congreve.client.admin.reports import BrokerReports
from congreve.client.errors import BrokerError


async def test_a_topic_has_the_attributes_that_its_creation_names(node: congreve.Node) -> None:
    async with AdminClient(node.address) as admin:
        (broker,) = await admin.create_topic("T", attributes="+message.type=PRIORITY")
        await admin.create_topic("T", queues=4)
        address = (await admin.masters("DefaultCluster"))[broker]
        config = (await BrokerReports(admin, address).topics())["T"]
        assert config.attributes == {"message.type": "PRIORITY"}
        assert config.write_queue_nums == 4
        with pytest.raises(BrokerError, match="unsupported key: nope"):
            await admin.create_topic("T", attributes="+nope=1")
