"""Properties that are as large as a record allows lose what brokers added, and nothing else."""

from hypothesis import given
from hypothesis import strategies as st

from congreve.records.layout import PROPERTIES_MAX
from congreve.records.message.fitting import OF_BROKERS, fitting, properties_size
from congreve.records.message.message import Record

VALUES = st.text(st.characters(min_codepoint=0x20, exclude_categories=("Cs",)), max_size=60)


@given(
    st.dictionaries(st.sampled_from((*OF_BROKERS, "TAGS", "KEYS", "a")), VALUES),
    st.integers(-400, 40),
    st.integers(0, 200),
)
def test_a_record_fits_without_as_few_properties_as_possible(
    properties: dict[str, str], more: int, room: int
) -> None:
    small = Record(topic="T", body=b"", properties={**properties, "filler": ""})
    filler = "x" * (PROPERTIES_MAX + more - properties_size(small))
    record = Record(topic="T", body=b"", properties={**properties, "filler": filler})
    fits = fitting(record, room=room)
    present = [name for name in OF_BROKERS if name in properties]
    sizes = [
        properties_size(
            Record(
                topic="T",
                body=b"",
                properties={k: v for k, v in record.properties.items() if k not in present[:count]},
            )
        )
        for count in range(len(present) + 1)
    ]
    enough = [count for count, size in enumerate(sizes) if size + room <= PROPERTIES_MAX]
    if not enough:
        assert fits is None
        return
    assert fits is not None
    left_out = record.properties.keys() - fits.properties.keys()
    assert left_out == set(present[: enough[0]])
    assert fits.properties.items() <= record.properties.items()
