"""Users and what they may do, as RocketMQ 5 writes them: headers and bodies.

A subject is `User:NAME`; a resource is `Topic:NAME`, `Group:NAME`, one of both with `*` as its
name, or `*` for all.
"""

from collections.abc import Iterable

from congreve.remoting.messages import fastjson
from congreve.remoting.messages.body import Body
from congreve.remoting.messages.header import Header


class UserRequestHeader(Header):
    """AUTH_CREATE_USER, AUTH_UPDATE_USER, AUTH_DELETE_USER, AUTH_GET_USER (RocketMQ 5:
    CreateUserRequestHeader and others)."""

    username: str = ""


class ListUsersRequestHeader(Header):
    """AUTH_LIST_USER: names with this text in them (RocketMQ 5: ListUsersRequestHeader)."""

    filter: str = ""


class AclRequestHeader(Header):
    """AUTH_CREATE_ACL, AUTH_UPDATE_ACL, AUTH_GET_ACL, and AUTH_DELETE_ACL, which may name one
    resource (RocketMQ 5: DeleteAclRequestHeader and others)."""

    subject: str = ""
    policy_type: str | None = None
    resource: str | None = None


class ListAclsRequestHeader(Header):
    """AUTH_LIST_ACL: subjects and resources with these texts in them (RocketMQ 5:
    ListAclsRequestHeader)."""

    subject_filter: str = ""
    resource_filter: str = ""


class UserInfo(Body):
    """A user; `user_type` is Super or Normal, `user_status` enable or disable (RocketMQ 5:
    UserInfo)."""

    username: str | None = None
    password: str | None = None
    user_type: str | None = None
    user_status: str | None = None


class PolicyEntryInfo(Body):
    """What may be done with a resource; `decision` is Allow or Deny (RocketMQ 5: AclInfo)."""

    resource: str = ""
    actions: list[str] = []
    source_ips: list[str] | None = None
    decision: str = ""


class PolicyInfo(Body):
    """Entries; `policy_type` is Custom or Default (RocketMQ 5: AclInfo)."""

    policy_type: str | None = None
    entries: list[PolicyEntryInfo] = []


class AclInfo(Body):
    """What a subject may do (RocketMQ 5: AclInfo)."""

    subject: str | None = None
    policies: list[PolicyInfo] = []


def encode_list(bodies: Iterable[Body]) -> bytes:
    """A body with several others; empty without any, as RocketMQ 5 answers."""
    found = list(bodies)
    return fastjson.dumps(found).encode() if found else b""
