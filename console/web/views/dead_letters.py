"""Dead letters: the groups that have some, their ages, and resends with an outcome for each."""

import base64
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response, StreamingResponse

from congreve.client.admin.dead_letters import AGES, OLDER, DeadLetter, LetterPosition
from congreve.client.admin.resend import ResendReport
from congreve.client.errors import InvalidSettingError
from congreve.client.message import Message
from congreve.console.web.formats import body_text, path_part, preview
from congreve.console.web.pages import Visit, redirect
from congreve.console.web.shown_message import hidden
from congreve.console.web.views.messages import whole
from congreve.records.message.properties import KEYS, TAGS
from congreve.records.message.topics import DLQ_PREFIX, dlq_topic

LETTERS = 100
SCAN_MAX = 20_000
"""Dead letters of a queue that the table of ages counts."""
EXPORT_MAX = 10_000
EXPORT_PAGE = 16
"""Dead letters of an export that are in memory at a time."""
RATE_MAX = 100_000.0
AGE_NAMES = (*(name for _, name in AGES), OLDER)


class Outcome(msgspec.Struct, frozen=True):
    """What a resend did with one dead letter."""

    position: LetterPosition
    text: str
    is_failure: bool


class Resent(msgspec.Struct):
    """The outcome of a resend: its counts, and a row for each letter that was chosen."""

    report: ResendReport
    rows: list[Outcome]


async def dead_letters(visit: Visit) -> Response:
    """The groups with dead letters; their numbers are counted in the background."""
    snapshot = await visit.cluster.snapshot()
    # Also of groups that were deleted.
    named = (topic for topic in snapshot.topics if topic.startswith(DLQ_PREFIX))
    names = {topic.removeprefix(DLQ_PREFIX) for topic in named}
    counted = visit.cluster.letters()
    counts = None if counted is None else {each.group: each.count for each in counted}
    rows = sorted(names, key=lambda name: (-(counts or {}).get(name, 0), name))
    return visit.page("dead_letters/dead_letters.html", rows=rows, counts=counts)


async def of_group(visit: Visit) -> Response:
    """The dead letters of one group: ages, and the newest."""
    group = visit.path("group")
    skip = whole(visit.query("skip", "0"), "skip")
    admin = visit.cluster.admin.dead_letters
    counts = await admin.count(group, scan_max=SCAN_MAX)
    letters = await admin.newest(group, count=LETTERS, skip=skip)
    kinds = sorted({(row.topic, row.reason) for row in counts.rows})
    numbers = {(row.topic, row.reason, row.age): row for row in counts.rows}
    return visit.page(
        "dead_letters/letters.html",
        group=group,
        topic=dlq_topic(group),
        counts=counts,
        kinds=kinds,
        numbers=numbers,
        unsent=counts.scanned - sum(row.resent for row in counts.rows),
        ages=AGE_NAMES,
        letters=[(letter, _preview(visit, letter)) for letter in letters],
        skip=skip,
        step=LETTERS,
        export_max=EXPORT_MAX,
    )


async def resend(visit: Visit) -> Response:
    """Resend the chosen dead letters, or all of the group."""
    group = visit.path("group")
    chosen = [_position(text) for text in visit.form.get("letter", [])]
    everything = visit.field("which") == "all"
    if not chosen and not everything:
        raise InvalidSettingError("choose the dead letters to resend")
    positions = None if everything else chosen
    work = run_resend(visit, group, positions, _rate(visit.field("rate")), _to_group(visit))
    return _begin(visit, group, "all" if everything else f"{len(chosen)}", work)


async def edit_form(visit: Visit) -> Response:
    """A form with a copy of a dead letter."""
    visit.check_sees_bodies()
    group = visit.path("group")
    letter = await _letter(visit, group)
    return visit.page(
        "dead_letters/edit_letter.html",
        group=group,
        letter=letter,
        text=body_text(letter.message.body),
    )


async def resend_edited(visit: Visit) -> Response:
    """Resend an edited copy of a dead letter, which then counts as resent."""
    visit.check_sees_bodies()
    group = visit.path("group")
    letter = await _letter(visit, group)
    body = visit.form.get("body", [""])[0].replace("\r\n", "\n").encode()
    if not body:
        raise InvalidSettingError("the body is empty")
    changes = {TAGS: visit.field("tags"), KEYS: visit.field("keys")}

    def edit(message: Message) -> Message:
        given = {name: value for name, value in changes.items() if value}
        kept = {name: value for name, value in message.properties.items() if name not in changes}
        return msgspec.structs.replace(message, body=body, properties=kept | given)

    work = run_resend(visit, group, [letter.position], None, _to_group(visit), edit)
    return _begin(visit, group, "an edited copy of 1", work)


async def outcome(visit: Visit) -> Response:
    """What a resend has done so far."""
    job = visit.cluster.jobs.find(visit.path("job"))
    if job is None:
        raise HTTPException(404, "There is no such job since the console started.")
    return visit.page("dead_letters/resent.html", group=visit.path("group"), job=job)


async def export(visit: Visit) -> Response:
    """The newest dead letters as lines of JSON, which are read as the browser takes them."""
    admin = visit.cluster.admin.dead_letters
    pages = admin.pages(visit.path("group"), count=EXPORT_MAX, page=EXPORT_PAGE)
    none: list[DeadLetter] = []
    first = await anext(pages, none)  # an error here becomes a page

    def lines(letters: Sequence[DeadLetter]) -> bytes:
        encoded = (_exported(letter, with_body=visit.sees_bodies) for letter in letters)
        return b"".join(msgspec.json.encode(each) + b"\n" for each in encoded)

    async def parts() -> AsyncIterator[bytes]:
        yield lines(first)
        async for letters in pages:
            yield lines(letters)

    return StreamingResponse(
        parts(),
        media_type="application/x-ndjson",
        headers={"content-disposition": 'attachment; filename="dead-letters.jsonl"'},
    )


async def run_resend(
    visit: Visit,
    group: str,
    positions: Sequence[LetterPosition] | None,
    rate: float | None,
    to_group: bool,
    edit: Callable[[Message], Message] | None = None,
) -> Resent:
    """Resend, and find the outcome of each chosen letter."""
    admin = visit.cluster.admin.dead_letters
    before = {}
    if positions is not None:
        before = {
            letter.position: letter.is_resent
            for letter in await admin.newest(group, count=EXPORT_MAX)
        }
    report = await admin.resend(group, to_group=to_group, rate=rate, positions=positions, edit=edit)
    visit.cluster.changed()
    return Resent(report, _outcomes(positions or (), report, before))


def _outcomes(
    positions: Sequence[LetterPosition],
    report: ResendReport,
    before: dict[LetterPosition, bool],
) -> list[Outcome]:
    failed = {
        LetterPosition(each.broker_name, each.queue_id, each.queue_offset): each.reason
        for each in report.failures
    }
    rows = [Outcome(position, reason, True) for position, reason in failed.items()]
    for position in positions:
        if position in failed:
            continue
        if before.get(position):
            rows.append(Outcome(position, "was sent again before: not sent", False))
        elif report.in_doubt:
            rows.append(Outcome(position, "not known: resend once more to find out", True))
        elif position in before:
            rows.append(Outcome(position, "sent again", False))
        else:
            rows.append(Outcome(position, "has expired", True))
    return rows


def _begin(visit: Visit, group: str, which: str, work: Any) -> Response:
    title = f"Resend {which} of {group}"
    job = visit.cluster.jobs.start(title, work)
    visit.audit.note(visit, "resent dead letters", f"{which} of {group}")
    return redirect(f"/dead-letters/{path_part(group)}/resent/{job.id}")


async def _letter(visit: Visit, group: str) -> DeadLetter:
    position = LetterPosition(
        visit.path("broker"),
        whole(visit.path("queue"), "queue"),
        whole(visit.path("offset"), "offset"),
    )
    letter = await visit.cluster.admin.dead_letters.get(group, position)
    if letter is None:
        raise HTTPException(404, "There is no dead letter at this offset, or it has expired.")
    return letter


def _position(text: str) -> LetterPosition:
    """A letter's place from a check box, `broker:queue:offset`. Raises InvalidSettingError."""
    name, _, offset = text.rpartition(":")
    broker, _, queue = name.rpartition(":")
    return LetterPosition(broker, whole(queue, "queue"), whole(offset, "offset"))


def _rate(text: str) -> float | None:
    if not text:
        return None
    rate = float(whole(text, "rate"))
    if not 1 <= rate <= RATE_MAX:
        raise InvalidSettingError(f"rate {text}: 1 to {RATE_MAX:,.0f} messages/s are expected")
    return rate


def _to_group(visit: Visit) -> bool:
    return visit.field("to") == "group"


def _preview(visit: Visit, letter: DeadLetter) -> str:
    body = letter.message.body
    return preview(body) if visit.sees_bodies else hidden(len(body))


def _exported(letter: DeadLetter, *, with_body: bool) -> dict[str, Any]:
    return {
        "topic": letter.topic,
        "reason": letter.reason,
        "deadMs": letter.dead_ms,
        "bornMs": letter.born_ms,
        "isResent": letter.is_resent,
        "messageId": letter.message.message_id,
        "properties": letter.message.properties,
        **(_exported_body(letter.message.body) if with_body else {}),
    }


def _exported_body(body: bytes) -> dict[str, str]:
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"bodyBase64": base64.b64encode(body).decode()}
