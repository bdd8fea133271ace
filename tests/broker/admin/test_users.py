"""Users and access lists of RocketMQ 5, which are accounts here."""

import json
import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from congreve.broker.accounts import users
from congreve.broker.accounts.accounts import Perm, topic_need
from congreve.broker.accounts.files import account_of
from congreve.broker.errors import ConfigError
from congreve.remoting.messages.admin_bodies import PlainAccessConfig
from congreve.remoting.messages.users import PolicyEntryInfo, PolicyInfo, UserInfo

from ..guarded import SECRET, guarded
from ..tool import Tool

CREATE_USER, UPDATE_USER, DELETE_USER, GET_USER, LIST_USERS = range(3001, 3006)
CREATE_ACL, UPDATE_ACL, DELETE_ACL, GET_ACL, LIST_ACLS = range(3006, 3011)


async def user(tool: Tool, code: int, name: str, **fields: str) -> Any:
    answer = await tool.ask(code, {"username": name}, json.dumps(fields).encode() * bool(fields))
    return answer.code, json.loads(answer.body) if answer.body else answer.remark or ""


async def allow(tool: Tool, subject: str, resource: str, *actions: str, **more: Any) -> Any:
    entry = {"resource": resource, "actions": actions, "decision": "Allow", **more}
    policies = [{"policyType": "Custom", "entries": [entry]}]
    body = json.dumps({"policies": policies}).encode()
    answer = await tool.ask(CREATE_ACL, {"subject": subject}, body)
    return answer.code, answer.remark or ""


async def test_a_user_is_an_account(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "congreve.broker.accounts.audit")
    async with guarded(tmp_path) as (_, tools):
        admin, made = tools.of("administrator"), tools.of("new-user")
        await admin.create_topic("T")
        assert (await user(admin, CREATE_USER, "new-user", password=SECRET)) == (0, "")
        assert (await user(admin, CREATE_USER, "new-user", password=SECRET))[0] == 16
        assert (await made.send("T")).code == 1
        assert await allow(admin, "User:new-user", "Topic:T", "Pub") == (0, "")
        assert (await made.send("T")).code == 0
        shown = {"username": "new-user", "userType": "Normal", "userStatus": "enable"}
        assert await user(admin, GET_USER, "new-user") == (0, shown)
        assert shown in await admin.json(LIST_USERS, {"filter": "new"})
        assert (await user(admin, UPDATE_USER, "new-user", userStatus="disable")) == (0, "")
        assert (await made.send("T")).code == 1
        status = (await user(admin, GET_USER, "new-user"))[1]
        assert status["userStatus"] == "disable"
        assert (await user(admin, UPDATE_USER, "new-user", userStatus="enable")) == (0, "")
        assert (await made.send("T")).code == 0, "its permissions were kept"
        assert (await user(admin, UPDATE_USER, "new-user", userType="Super")) == (0, "")
        assert (await made.create_topic("U")).code == 0
        assert (await user(made, DELETE_USER, "new-user")) == (0, "")
        assert (await user(admin, DELETE_USER, "new-user")) == (0, "")
        assert (await made.send("T")).code == 1
        assert await user(admin, GET_USER, "new-user") == (0, "")
        assert SECRET not in caplog.text
        assert '"request": "AUTH_UPDATE_USER", "fields": {"username": "new-user"}' in caplog.text


async def test_an_access_list_is_the_permissions_of_an_account(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (_, tools):
        admin, both = tools.of("administrator"), "User:both-of-T"
        found = await admin.json(GET_ACL, {"subject": both})
        assert entries(found) == [
            ("Topic:T", ["Pub", "Sub"], "Allow"),
            ("Group:G", ["Sub"], "Allow"),
            ("Group:P", ["Pub"], "Allow"),
        ]
        assert (await allow(admin, both, "*", "All"))[0] == 0
        assert (await allow(admin, both, "Topic:T", "All", decision="Deny"))[0] == 0
        assert (await tools.of("both-of-T").send("T")).code == 1
        assert (await tools.of("both-of-T").send("other")).code == 0
        listed = await admin.json(LIST_ACLS, {"subjectFilter": "both", "resourceFilter": "Topic"})
        assert [entries(each) for each in listed] == [
            [("Topic:*", ["Pub", "Sub"], "Allow"), ("Topic:T", ["All"], "Deny")]
        ]
        delete = {"subject": both, "policyType": "Custom", "resource": "Topic:T"}
        assert (await admin.ask(DELETE_ACL, delete)).code == 0
        assert (await tools.of("both-of-T").send("T")).code == 0
        assert (await admin.ask(DELETE_ACL, {"subject": both})).code == 0
        assert (await admin.ask(GET_ACL, {"subject": both})).body == b""
        assert (await tools.of("both-of-T").send("T")).code == 1


async def test_what_accounts_cannot_say_is_refused(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (_, tools):
        admin, both = tools.of("administrator"), "User:both-of-T"
        for resource, actions, more, text in (
            ("Topic:T*T", ["Pub"], {}, "Topic:NAME"),
            ("Topic:T=U", ["Pub"], {}, "Topic:NAME"),
            ("Cluster:c", ["Pub"], {}, "Topic:NAME"),
            ("Topic:T", ["Create"], {}, "Pub, Sub or All"),
            ("Topic:T", ["Pub"], {"sourceIps": ["10.0.0"]}, "pattern of addresses"),
            ("Topic:T", ["Pub"], {"decision": "Deny"}, "deny All"),
            ("Topic:T", ["Pub"], {"decision": ""}, "decision"),
            ("Topic:T", [], {}, "needs an action"),
        ):
            code, remark = await allow(admin, both, resource, *actions, **more)
            assert code == 16, resource
            assert text in remark
        assert (await allow(admin, "User:absent", "Topic:T", "Pub"))[1] == (
            "The subject of User:absent is not exist."
        )
        assert (await allow(admin, "Role:r", "Topic:T", "Pub"))[0] == 29
        assert await user(admin, CREATE_USER, " ", password=SECRET) == (29, "The username is blank")
        assert (await user(admin, CREATE_USER, "short-secret", password="x"))[0] == 16
        assert (await user(tools.of("pub-of-T"), GET_USER, "both-of-T"))[0] == 1
        found = await admin.json(GET_ACL, {"subject": both})
        assert len(entries(found)) == 3, "nothing was changed"


def entries(acl: dict[str, Any]) -> list[tuple[str, list[str], str]]:
    (policy,) = acl["policies"]
    assert policy["policyType"] == "Custom"
    return [(each["resource"], each["actions"], each["decision"]) for each in policy["entries"]]


async def test_prefixes_and_source_addresses(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (_, tools):
        admin, maker, other = tools.of("administrator"), tools.of("other-topic"), "User:other-topic"
        for topic in ("orders-1", "orders-2", "orders-2-a", "T"):
            await admin.create_topic(topic)

        async def may_send() -> list[int]:
            """The numbers of the topics that the account may send to."""
            names = ("orders-1", "orders-2", "orders-2-a", "T")
            return [at for at, name in enumerate(names) if (await maker.send(name)).code == 0]

        assert await may_send() == []
        assert (await allow(admin, other, "Topic:orders-*", "Pub"))[0] == 0
        assert await may_send() == [0, 1, 2]
        assert (await allow(admin, other, "Topic:orders-2*", "All", decision="Deny"))[0] == 0
        assert await may_send() == [0]
        assert (await allow(admin, other, "Topic:orders-2", "Pub", sourceIps=["127.0.0.0/8"]))[
            0
        ] == 0
        assert await may_send() == [0, 1]
        assert (await allow(admin, other, "Topic:orders-2", "Pub", sourceIps=["10.0.0.1"]))[0] == 0
        assert await may_send() == [0], "from here the shorter name counts"
        here = ["10.0.0.1", "127.0.0.1"]
        assert (await allow(admin, other, "Topic:*", "Pub", sourceIps=here))[0] == 0
        assert await may_send() == [0, 3]
        found = await admin.json(GET_ACL, {"subject": other})
        (policy,) = found["policies"]
        sources = {each["resource"]: each.get("sourceIps") for each in policy["entries"]}
        assert sources == {
            **{"Topic:U": None, "Topic:orders-*": None, "Topic:orders-2*": None, "Group:H": None},
            **{"Topic:orders-2": ["10.0.0.1"], "Topic:*": here},
        }
        assert (await allow(admin, other, "Topic:*", "All", decision="Deny"))[0] == 0
        assert await may_send() == [0], "it takes the place of the one with addresses"
        delete = {"subject": other, "resource": "Topic:orders-*"}
        assert (await admin.ask(DELETE_ACL, delete)).code == 0
        assert await may_send() == []
        # Compiled code, which serves sends of accounts without prefixes, knows of this one, too.
        assert (await allow(admin, other, "Topic:*", "All"))[0] == 0
        assert await may_send() == [0, 3]


def test_grants_open_dead_letters_by_name_only() -> None:
    def may_read(*lines: str) -> bool:
        config = PlainAccessConfig(
            access_key="an-account",
            secret_key=SECRET,
            topic_perms=[each for each in lines if not each.startswith("G")],
            group_perms=[each for each in lines if each.startswith("G")],
        )
        return account_of(config).lacks([topic_need("%DLQ%Group", Perm.SUB)], "127.0.0.1") is None

    assert may_read("Gr*=SUB")
    assert may_read("%DLQ%Gr*=SUB@127.0.0.1")
    assert not may_read("*=SUB@127.0.0.1")
    assert not may_read("Gr*=SUB@10.0.0.1")


names = st.sampled_from(
    ["Topic:T", "Topic:U", "Topic:U*", "Group:G", "Group:G*", "Topic:*", "Group:*"]
)
allowed = st.sampled_from([["Pub"], ["Sub"], ["Pub", "Sub"], ["All"]])


@given(st.dictionaries(names, st.one_of(allowed, st.none()), min_size=1))
def test_what_is_written_is_read_again(wanted: dict[str, list[str] | None]) -> None:
    config = users.new_user(UserInfo(username="an-account", password=SECRET))
    made = [
        PolicyEntryInfo(
            resource=name, actions=actions or ["All"], decision="Allow" if actions else "Deny"
        )
        for name, actions in wanted.items()
    ]
    config = users.with_policies(config, [PolicyInfo(entries=made)])
    account_of(config)
    found = users.acl_of(config)
    assert found is not None
    (policy,) = found.policies
    both = ["Pub", "Sub"]
    assert {
        each.resource: each.decision == "Allow" and each.actions for each in policy.entries
    } == {
        name: actions is not None and (both if actions == ["All"] else actions)
        for name, actions in wanted.items()
    }
    for name in wanted:
        config = users.without_resource(config, name)
    assert config == PlainAccessConfig(access_key="an-account", secret_key=SECRET)


def test_a_user_keeps_what_is_not_changed() -> None:
    config = PlainAccessConfig(access_key="k", secret_key=SECRET, admin=True, topic_perms=["T=PUB"])
    assert users.changed_user(config, UserInfo()) == config
    changed = users.changed_user(config, UserInfo(user_status="DISABLE", user_type="normal"))
    assert changed == msgspec.structs.replace(config, status="disable", admin=False)
    for wanted in (UserInfo(user_type="root"), UserInfo(user_status="gone")):
        with pytest.raises(ConfigError):
            users.changed_user(config, wanted)
