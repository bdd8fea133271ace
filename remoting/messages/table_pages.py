"""Tables of a broker that a slave asks for in pages, by ext fields that RocketMQ 4.9 ignores.

RocketMQ 5.4 has those of topics and of groups (GetAllTopicConfigRequestHeader,
GetAllSubscriptionGroupRequestHeader); those of offsets are ours.
"""

from typing import NamedTuple

from congreve.remoting.errors import BodyError
from congreve.remoting.messages.bodies import DataVersion
from congreve.remoting.messages.codes import RequestCode
from congreve.remoting.messages.command import RemotingCommand

PAGE_MAX = 2_000
"""Entries of a page: with the longest names it fits into a frame."""

_VERSION = "dataVersion"


class _Fields(NamedTuple):
    """The names of a table's fields: in a request the number of its first entry and the most
    entries, in an answer the number of all entries."""

    first: str
    most: str
    total: str


_FIELDS = {
    RequestCode.GET_ALL_TOPIC_CONFIG: _Fields("topicSeq", "maxTopicNum", "totalTopicNum"),
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: _Fields(
        "groupSeq", "maxGroupNum", "totalGroupNum"
    ),
    RequestCode.GET_ALL_CONSUMER_OFFSET: _Fields("offsetSeq", "maxOffsetNum", "totalOffsetNum"),
}


class Page(NamedTuple):
    """A part of a table: its entries from `first` on, `most` at most, if the table still has
    `version`; else those from 0 on. (RocketMQ: GetAllTopicConfigRequestHeader.)
    """

    first: int
    most: int
    version: DataVersion | None


def page_request(code: int, first: int, version: DataVersion | None) -> RemotingCommand:
    """The request for a page; `version` is that of the pages before it."""
    fields = _FIELDS[RequestCode(code)]
    texts = {fields.first: str(first), fields.most: str(PAGE_MAX)}
    texts[_VERSION] = "" if version is None else version.encode().decode()
    return RemotingCommand(code=code, ext_fields=texts)


def read_page_request(request: RemotingCommand) -> Page | None:
    """The page that a request is for, None for the whole table. Raises BodyError."""
    fields = _FIELDS[RequestCode(request.code)]
    names = fields.first, fields.most, _VERSION
    texts = {name: request.ext_fields.get(name, "") for name in names}
    if not any(texts.values()):
        return None
    try:
        first = int(texts[fields.first] or 0)
        most = int(texts[fields.most] or PAGE_MAX)
    except ValueError as error:
        raise BodyError(f"page of a table: {error}") from error
    version = DataVersion.decode(texts[_VERSION].encode()) if texts[_VERSION].strip() else None
    return Page(max(first, 0), min(max(most, 1), PAGE_MAX), version)


def total_fields(code: int, total: int) -> dict[str, str]:
    """The ext fields of the answer with a page."""
    return {_FIELDS[RequestCode(code)].total: str(total)}


def read_total(answer: RemotingCommand, code: int) -> int | None:
    """How many entries the table has; None: the answer has them all."""
    text = answer.ext_fields.get(_FIELDS[RequestCode(code)].total, "")
    return int(text) if text.isdecimal() else None
