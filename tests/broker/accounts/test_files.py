"""Files with accounts: those of RocketMQ's distribution, changes, damage."""

import stat
from pathlib import Path

import pytest

from congreve.base.clock import ManualClock
from congreve.broker.accounts.accounts import Kind, Need, Perm
from congreve.broker.accounts.files import AccountFiles
from congreve.broker.errors import ConfigError
from congreve.remoting.messages.admin_bodies import PlainAccessConfig
from congreve.remoting.messages.bodies import DataVersion

# As in RocketMQ's conf/plain_acl.yml: the secret is a number in YAML.
DISTRIBUTED = """
globalWhiteRemoteAddresses:
  - 10.10.103.*
  - 192.168.0.*

accounts:
  - accessKey: RocketMQ
    secretKey: 12345678
    whiteRemoteAddress:
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - topicA=DENY
      - topicB=PUB|SUB
      - topicC=SUB
    groupPerms:
      # the group should convert to retry topic
      - groupA=DENY
      - groupB=PUB|SUB
      - groupC=SUB

  - accessKey: rocketmq2
    secretKey: 12345678
    whiteRemoteAddress: 192.168.1.*
    # if it is admin, it could access all resources
    admin: true
"""


def files_in(folder: Path, text: str = DISTRIBUTED) -> AccountFiles:
    (folder / "plain_acl.yml").write_text(text)
    return AccountFiles(str(folder), ManualClock(1_000))


def topic(name: str, perm: Perm) -> Need:
    return Need(Kind.TOPIC, name, perm)


def group(name: str) -> Need:
    return Need(Kind.GROUP, name, Perm.SUB)


def test_the_distributed_account_file_is_read(tmp_path: Path) -> None:
    accounts = files_in(tmp_path).load()
    assert accounts.is_white("10.10.103.7")
    assert not accounts.is_white("10.10.104.7")
    one, two = accounts.by_key["RocketMQ"], accounts.by_key["rocketmq2"]
    assert one.secret_key == "12345678"
    assert not one.admin
    assert two.may_do_all
    assert two.white_addresses.matches("192.168.1.3")
    allowed = [topic("topicB", Perm.PUB), topic("topicC", Perm.SUB), group("groupC"), group("any")]
    assert [one.lacks([need]) for need in allowed] == [None] * 4
    denied = [topic("topicA", Perm.SUB), topic("topicC", Perm.PUB), topic("other", Perm.PUB)]
    for need in [*denied, group("groupA")]:
        assert one.lacks([need]) == need
    assert one.lacks([topic("RMQ_SYS_TRACE_TOPIC", Perm.PUB)]) is None
    assert one.lacks([topic("RMQ_SYS_TRACE_TOPIC", Perm.PUB), denied[0]]) == denied[0]


def test_further_files_are_read_and_the_first_of_equal_keys_wins(tmp_path: Path) -> None:
    (tmp_path / "acl" / "deep").mkdir(parents=True)
    (tmp_path / "acl" / "..data").mkdir()
    (tmp_path / "acl" / "a.yml").write_text(
        "accounts:\n- accessKey: RocketMQ\n  secretKey: another-one\n"
    )
    (tmp_path / "acl" / "deep" / "b.yaml").write_text(
        "accounts: [{accessKey: further, secretKey: its-secret}]"
    )
    (tmp_path / "acl" / "..data" / "c.yml").write_text("accounts: broken")
    (tmp_path / "acl" / "notes.txt").write_text("accounts: broken")
    files = files_in(tmp_path)
    accounts = files.load()
    assert set(accounts.by_key) == {"RocketMQ", "rocketmq2", "further"}
    assert accounts.by_key["RocketMQ"].secret_key == "another-one"
    assert len(files.versions) == 3


@pytest.mark.parametrize(
    "text",
    [
        "accounts: [",
        "- a list",
        "accounts: 3",
        "accounts: [3]",
        "accounts: [{accessKey: short}]",
        "accounts: [{accessKey: long-enough, secretKey: short}]",
        "accounts: [{accessKey: long-enough, secretKey: long-enough, topicPerms: [T]}]",
        "accounts: [{accessKey: long-enough, secretKey: long-enough, topicPerms: T=PUB}]",
        "globalWhiteRemoteAddresses: [1.2.3]",
        "globalWhiteRemoteAddresses: 1.2.3.4",
        "a: !!python/object/apply:os.system ['true']",
        "[" * 5000,
    ],
)
def test_an_invalid_account_file_is_refused(tmp_path: Path, text: str) -> None:
    files = files_in(tmp_path)
    before = files.load()
    (tmp_path / "plain_acl.yml").write_text(text)
    with pytest.raises(ConfigError):
        files.load()
    assert files.without_secrets().plain_access_configs
    assert before.by_key


def test_changes_keep_the_fields_that_they_do_not_name(tmp_path: Path) -> None:
    (tmp_path / "plain_acl.yml").touch(0o644)
    files = files_in(tmp_path)
    files.load()
    files.update(PlainAccessConfig(access_key="RocketMQ", topic_perms=["topicD=PUB"]))
    files.update(PlainAccessConfig(access_key="newcomer", secret_key="its-secret", admin=True))
    accounts = files.load()
    assert accounts.by_key["RocketMQ"].secret_key == "12345678"
    assert accounts.by_key["RocketMQ"].topics == {"topicD": Perm.PUB}
    assert accounts.by_key["RocketMQ"].groups["groupC"] == Perm.SUB
    assert accounts.by_key["newcomer"].may_do_all
    assert accounts.is_white("10.10.103.7")
    path = tmp_path / "plain_acl.yml"
    assert files.versions == {str(path): DataVersion(counter=2, timestamp=1_000)}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["plain_acl.yml"]
    files.update(PlainAccessConfig(access_key="newcomer", admin=False))
    assert not files.load().by_key["newcomer"].may_do_all
    files.delete("newcomer")
    files.set_white_addresses(["10.0.0.1"])
    accounts = files.load()
    assert set(accounts.by_key) == {"RocketMQ", "rocketmq2"}
    assert [each.text for each in accounts.white_addresses] == ["10.0.0.1"]


@pytest.mark.parametrize(
    "wanted",
    [
        PlainAccessConfig(access_key="newcomer"),
        PlainAccessConfig(access_key="newcomer", secret_key="short"),
        PlainAccessConfig(access_key="new", secret_key="long-enough"),
        PlainAccessConfig(access_key="RocketMQ", topic_perms=["T=WRITE"]),
        PlainAccessConfig(access_key="RocketMQ", group_perms=["T=PUB=SUB"]),
        PlainAccessConfig(access_key="RocketMQ", default_topic_perm="ALL"),
        PlainAccessConfig(access_key="RocketMQ", white_remote_address="1.2.3"),
    ],
)
def test_invalid_changes_are_refused(tmp_path: Path, wanted: PlainAccessConfig) -> None:
    files = files_in(tmp_path)
    files.load()
    with pytest.raises(ConfigError):
        files.update(wanted)
    with pytest.raises(ConfigError):
        files.delete("unknown-key")
    with pytest.raises(ConfigError):
        files.set_white_addresses(["1.2.3.4"], "/etc/passwd.yml")
    assert (tmp_path / "plain_acl.yml").read_text() == DISTRIBUTED


def test_the_data_version_changes_with_the_files(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    stamps = {files.stamp()}
    (tmp_path / "acl").mkdir()
    (tmp_path / "acl" / "a.yml").write_text("accounts: []")
    stamps.add(files.stamp())
    files.load()
    files.set_white_addresses([])
    stamps.add(files.stamp())
    (tmp_path / "acl" / "a.yml").unlink()
    stamps.add(files.stamp())
    assert len(stamps) == 4
