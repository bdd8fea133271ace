"""Metrics as text: Prometheus' format 0.0.4 and OpenMetrics 1.0.

prometheus_client writes a whole answer in one call (docs/decisions/metrics-on-the-loop.md); here
some lines are a step.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import accumulate
from typing import TypeVar

import msgspec

from congreve.base.steps import portions

PLAIN_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"

CHARACTERS_OF_CHUNK = 1 << 16
LABELS = "\0"
"""The place of the labels in histogram_template()."""

Row = TypeVar("Row")


class Kind(StrEnum):
    """The type of a metric."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


class Family(msgspec.Struct):
    """A metric with all its series: pairs of labels (as label_text() gives them) and value.

    A counter's name ends with `_total`. The labels of a histogram's series begin with the suffix
    of the name, such as ``_bucket{le="1"}``. `blocks` are lines of further series.
    """

    name: str
    kind: Kind
    help: str
    samples: list[tuple[str, float]]
    blocks: list[str] = []


Families = Generator[Family | None, None, None]
"""Families, and None where a pause is possible."""


def label_text(constant: str = "", **labels: str) -> str:
    """The labels of a series, `constant` first, which is another text without its braces."""
    pairs = [constant] if constant else []
    pairs += [f'{name}="{escaped(value)}"' for name, value in labels.items()]
    return "{" + ",".join(pairs) + "}" if pairs else ""


def escaped(value: str) -> str:
    """A label's value as it is written between quotes."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def histogram(
    constant: str, bounds: Sequence[float], counts: Sequence[int], total: float
) -> list[tuple[str, float]]:
    """The series of one histogram with the labels `constant` (a text without its braces).

    `counts` are those of each bucket and of what is above the last bound.
    """
    ends = [*(f"{bound:g}" for bound in bounds), "+Inf"]
    samples = [
        ("_bucket" + label_text(constant, le=end), float(upto))
        for end, upto in zip(ends, accumulate(counts), strict=True)
    ]
    labels = label_text(constant)
    return [*samples, ("_sum" + labels, total), ("_count" + labels, samples[-1][1])]


def histogram_template(name: str, bounds: Sequence[float]) -> str:
    """The lines of a histogram, for histogram_block()."""
    ends = [*(f"{bound:g}" for bound in bounds), "+Inf"]
    buckets = "".join(f'{name}_bucket{{{LABELS},le="{end}"}} %d\n' for end in ends)
    return f"{buckets}{name}_sum{{{LABELS}}} %d\n{name}_count{{{LABELS}}} %d\n"


def histogram_block(template: str, labels: str, counts: Sequence[int], total: int) -> str:
    """The lines of one histogram, quicker than histogram(); `labels` have no braces."""
    buckets = tuple(accumulate(counts))
    return (template % (*buckets, total, buckets[-1])).replace(LABELS, labels)


def is_open_metrics(accept: str) -> bool:
    """Whether an Accept header asks for OpenMetrics."""
    return "application/openmetrics-text" in accept


def labels_of(
    rows: Sequence[Row], labels: Callable[[Row], str]
) -> Generator[None, None, list[str]]:
    """The labels of all rows, in steps."""
    found: list[str] = []
    for part in portions(rows):
        found += [labels(row) for row in part]
        yield
    return found


def text_steps(
    families: Iterable[Family | None], open_metrics: bool
) -> Generator[None, None, list[bytes]]:
    """The text of the families, in steps: chunks of some hundred lines. None is a step, too."""
    chunks: list[bytes] = []
    texts: list[str] = []
    size = 0
    for family in families:
        yield
        if family is None:
            continue
        texts.append(_head(family, open_metrics))
        for text in _lines(family):
            texts.append(text)
            size += len(text)
            if size >= CHARACTERS_OF_CHUNK:
                chunks.append("".join(texts).encode())
                texts.clear()
                size = 0
            yield
    if open_metrics:
        texts.append("# EOF\n")
    chunks.append("".join(texts).encode())
    return chunks


def _lines(family: Family) -> Iterator[str]:
    """The lines of a family, some at a time."""
    name = family.name
    for part in portions(family.samples):
        yield "".join([f"{name}{labels} {value}\n" for labels, value in part])
    for some in portions(family.blocks):
        yield "".join(some)


def _head(family: Family, open_metrics: bool) -> str:
    # OpenMetrics names a counter without the suffix that its series have.
    is_counter = family.kind is Kind.COUNTER
    name = family.name.removesuffix("_total") if open_metrics and is_counter else family.name
    return f"# HELP {name} {family.help}\n# TYPE {name} {family.kind}\n"
