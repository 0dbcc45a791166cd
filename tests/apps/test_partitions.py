"""The table of slots, from what owners and standbys said."""

from __future__ import annotations

from noontide.apps.cli.common import security_from, security_variables
from noontide.apps.cli.partitions import SILENT_MS, row_of, slot_as_json
from noontide.records.owners import OWNER, STANDBY, OwnerStatus, Said, Speaker, decode_owner, encode_owner
from noontide.records.topics import Layout

LAYOUT = Layout(partitions=16, slots=2)
NOW_MS = 1_000_000


def said(process: str, phase: str, *, role: str = OWNER, ago_ms: int = 0, **status: int) -> Said:
    found = OwnerStatus(phase, **status)
    return Said(1, role, process, (8, 15), since_ms=5, said_ms=NOW_MS - ago_ms, status=found)


def test_a_slot_that_nobody_has() -> None:
    assert row_of(LAYOUT, 1, [], NOW_MS) == ("1", "8-15", "-", "nobody yet", "", "", "", "-")
    assert slot_as_json(LAYOUT, 1, []) == {"slot": 1, "partitions": [8, 15], "owner": None, "standbys": []}


def test_an_owner_at_work_and_its_standby() -> None:
    found = [
        said("a:1", "working", lag=1_200, late_ms=2_000, cycle_at=NOW_MS - 3_000),
        said("b:2", "warm", role=STANDBY, lag=12),
    ]
    assert row_of(LAYOUT, 1, found, NOW_MS) == (
        *("1", "8-15", "a:1", "working", "1,200", "2 s", "3 s ago"),
        "b:2 (warm, 12 behind)",
    )


def test_how_far_a_replay_is() -> None:
    assert row_of(LAYOUT, 1, [said("a:1", "replaying", read=25, total=200)], NOW_MS)[3] == "replaying 12 %"


def test_who_is_silent_is_called_so() -> None:
    found = [said("a:1", "working", ago_ms=SILENT_MS + 1), said("b:2", "warm", role=STANDBY, ago_ms=60_000)]
    row = row_of(LAYOUT, 1, found, NOW_MS)
    assert row[3].startswith("silent for 20 s")
    assert row[-1] == "b:2 (silent for 1 min)"


def test_records_come_back_as_they_were() -> None:
    status = OwnerStatus("working", restore_ms=3, read=1, total=2, lag=3, late_ms=4, cycle=5, cycle_at=6)
    value = encode_owner(LAYOUT, 1, status, Speaker("a:1", STANDBY, 7, "http://x"))
    assert decode_owner(value, 9) == Said(1, STANDBY, "a:1", (8, 15), 7, 9, status)


def test_what_an_older_owner_said_is_understood() -> None:
    value = b'{"slot":1,"owner":"a:1","url":null,"generation":0,"since":7,"partitions":[8,15],"restore_ms":3}'
    assert decode_owner(value, 9) == Said(1, OWNER, "a:1", (8, 15), 7, 9, OwnerStatus("working", restore_ms=3))


def test_security_settings_pass_through_variables() -> None:
    security = {"security.protocol": "SASL_SSL", "sasl.password": "p", "ssl.endpoint.identification.algorithm": "none"}
    assert security_from(security_variables(security)) == security
