"""A broker without a name server, with RocketMQ's broker.conf."""

from pathlib import Path

import congreve
from congreve.client import SyncProducer

conf = Path("broker.conf")
conf.write_text("brokerName=a\nlistenPort=0\nstorePathRootDir=store\nuseEpollNativeSelector=true\n")

with congreve.Broker.from_conf(conf, brokerIP1="127.0.0.1", answerRouteRequests=True) as broker:
    print(f"no effect here: {', '.join(broker.unknown_keys)}")
    # Clients may take the broker's address for a name server's, because it answers for routes.
    with SyncProducer(broker.address, group="writers") as producer:
        result = producer.send(congreve.Message(topic="orders", body=b"hello"))
        print(f"stored at offset {result.queue_offset} by broker {result.queue.broker_name}")
