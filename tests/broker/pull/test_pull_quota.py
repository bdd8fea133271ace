"""Pulls that wait for their quota are bounded."""

from congreve.broker.pull import pull_quota
from congreve.broker.pull.pull_quota import FLAG_SUSPEND, PullQuota
from congreve.broker.quotas.quota_table import QuotaTable
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.command import RemotingCommand


async def test_the_bytes_of_postponed_pulls_are_bounded(connection, monkeypatch):
    fields = {"sysFlag": str(FLAG_SUSPEND), "suspendTimeoutMillis": "60000"}
    frame = RemotingCommand(code=RequestCode.PULL_MESSAGE, ext_fields=fields).encode()
    monkeypatch.setattr(pull_quota, "POSTPONED_BYTES_MAX", 2 * len(frame))
    served: list[bytes] = []
    quota = PullQuota(QuotaTable(), lambda _, frame: served.append(frame))
    for _ in range(3):
        quota.limit(connection, frame, 10**12)
    assert len(quota) == 2
    assert [answer.code for answer in connection.answers] == [ResponseCode.FLOW_CONTROL]
    quota.stop()
    assert served == [frame, frame]
    quota.limit(connection, frame, 10**12)
    assert len(quota) == 1
    quota.stop()
