"""A registration as a Java broker sends it, and the route that it makes."""

from harness.name_server_peer import Answer, Peer

BROKER = {
    "brokerName": "broker-a",
    "brokerAddr": "127.0.0.1:10911",
    "clusterName": "DefaultCluster",
    "haServerAddr": "127.0.0.1:10912",
    "brokerId": 0,
}
VERSION = '{"counter":3,"timestamp":1690000000000}'
TOPIC = (
    '{"order":false,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG",'
    '"topicName":"T","topicSysFlag":0,"writeQueueNums":4}'
)
WRAPPER = f'{{"dataVersion":{VERSION},"topicConfigTable":{{"T":{TOPIC}}}}}'
BODY = f'{{"filterServerList":[],"topicConfigSerializeWrapper":{WRAPPER}}}'.encode()
ROUTE = (
    b'{"brokerDatas":[{"brokerAddrs":{%s:"127.0.0.1:10911"},"brokerName":"broker-a",'
    b'"cluster":"DefaultCluster"}],"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a",'
    b'"perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
)


async def register(peer: Peer, body: bytes = BODY, version: int = 401, **more: object) -> Answer:
    return await peer.call(103, {**BROKER, **more}, body, version)
