"""The pages: a handler for each path, and for each form."""

from collections.abc import Awaitable, Callable

from starlette.responses import Response

from congreve.console.web.pages import Visit
from congreve.console.web.views import (
    accounts,
    audit,
    brokers,
    dead_letters,
    groups,
    messages,
    overview,
    tables,
    tail,
    timers,
    topics,
    traces,
)

Handler = Callable[[Visit], Awaitable[Response]]

_LETTER = "/dead-letters/{group}/edit/{broker}/{queue}/{offset}"
_MESSAGE = "/messages/{topic}/{broker}/{queue}/{offset}"

PAGES: dict[str, Handler] = {
    "/": overview.overview,
    "/live": overview.live,
    "/rates": overview.rates,
    "/topics": topics.topics,
    "/topics/{topic}": topics.topic,
    "/messages": messages.messages,
    "/messages/tail": tail.tail,
    "/messages/tail/events": tail.tail_events,
    _MESSAGE: messages.message,
    f"{_MESSAGE}/body": messages.body,
    "/groups": groups.groups,
    "/groups/{group}": groups.group,
    "/groups/{group}/members/{client}": groups.running_info,
    "/timers": timers.timers,
    "/traces": traces.traces,
    "/dead-letters": dead_letters.dead_letters,
    "/dead-letters/{group}": dead_letters.of_group,
    "/dead-letters/{group}/resent/{job}": dead_letters.outcome,
    _LETTER: dead_letters.edit_form,
    "/tables": tables.tables,
    "/brokers": brokers.brokers,
    "/brokers/{broker}": brokers.broker,
    "/tuned": brokers.tuned,
    "/tuned/picture": brokers.tuned_picture,
    "/accounts": accounts.accounts,
    "/audit": audit.audit,
}
"""What a GET of each path answers with; none of them changes anything."""

ACTIONS: dict[str, Handler] = {
    "/dead-letters/{group}/export": dead_letters.export,
    "/topics": topics.save_topic,
    "/topics/{topic}/delete": topics.delete_topic,
    "/topics/{topic}/send": topics.send_message,
    "/groups/{group}/preview": groups.preview_reset,
    "/groups/{group}/reset": groups.reset,
    "/groups/{group}/delete": groups.delete_group,
    "/timers/recall": timers.recall,
    "/dead-letters/{group}/resend": dead_letters.resend,
    _LETTER: dead_letters.resend_edited,
    "/brokers/{broker}": brokers.save_setting,
    "/accounts": accounts.save_account,
    "/accounts/delete": accounts.delete_account,
    "/accounts/addresses": accounts.save_addresses,
}
"""What a POST to each path does; each needs the token of its session."""
