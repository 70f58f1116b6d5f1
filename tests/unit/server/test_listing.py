"""Pages of sandboxes: whole, in order, never larger than a frame."""

from hypothesis import given
from hypothesis import strategies as st

from protocol.codec import JSON, MSGPACK
from protocol.names import SERVER_FRAME_BYTES
from sandbox.spec import STATUSES, SandboxRecord
from server.listing import PAGE_BYTES, page
from server.records import record_fields


def record(name, status="stopped", words=None):
    return SandboxRecord(name, status, True, "debian", "lite", last_error=words)


def pages(records, **limits):
    found, after, more = [], None, True
    while more:
        part, more = page(records, after=after, **limits)
        assert part or not more
        found.append(part)
        after = part[-1]["id"] if part else None
    return found


IDS = st.text("abc-_0", min_size=1, max_size=6)
RECORDS = st.dictionaries(IDS, st.sampled_from(STATUSES)).map(
    lambda them: [record(name, status) for name, status in them.items()]
)


@given(RECORDS, st.integers(1, 9))
def test_pages_hold_every_record_once_the_active_first(records, limit):
    found = pages(records, limit=limit)
    flat = [one for part in found for one in part]
    assert all(len(part) == limit for part in found[:-1])
    assert sorted(one["id"] for one in flat) == sorted(one.id for one in records)
    active = [one["status"] not in ("stopped", "error") for one in flat]
    assert active == sorted(active, reverse=True)
    assert flat == page(records)[0]


@given(RECORDS, st.integers(1, 4), st.data())
def test_one_that_went_between_two_pages_costs_no_other(records, limit, data):
    part, more = page(records, limit=limit)
    idle = [one for one in part if one["status"] in ("stopped", "error")]
    if not more or not idle or part[-1] not in idle:
        return
    left = [one for one in records if one.id != part[-1]["id"]]
    rest, _ = page(left, after=part[-1]["id"])
    told = {one["id"] for one in part} | {one["id"] for one in rest}
    assert told == {one.id for one in records}


def test_three_thousand_come_in_frames_of_the_size_that_clients_expect():
    records = [record(f"{n:04}{'s' * 76}", words="ä" * 300 + "\n\"'" * 20) for n in range(3000)]
    found = pages(records, size_bytes=PAGE_BYTES)
    assert sum(map(len, found)) == 3000
    for part in found:
        ack = {"ref": "r" * 64, "type": "ack", "sandboxes": part, "more": True}
        assert len(JSON.encode(ack)) < SERVER_FRAME_BYTES
        assert len(MSGPACK.encode(ack)) < SERVER_FRAME_BYTES
    assert len(JSON.encode({"s": found[0]})) > 0.9 * PAGE_BYTES


def test_all_come_at_once_where_nothing_bounds_them():
    records = [record(f"s{n:04}") for n in range(3000)]
    found, more = page(records)
    assert (found, more) == ([record_fields(one) for one in records], False)
