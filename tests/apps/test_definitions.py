"""Definitions in files: bytes are kept, places are named, YAML means what it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from noontide.apps.cli.common import Fault
from noontide.apps.cli.definitions import read_sources, split

ODD = b'{ "id":"a",  "payload": {"big": 12345678901234567890123, "e": 1.0e+2, "u": "\\u00e4" } }'


def texts(data: bytes, name: str) -> list[bytes]:
    return [source.text for source in split(data, name=name)]


def places(data: bytes, name: str) -> list[str]:
    return [source.place for source in split(data, name=name)]


def test_json_is_kept_byte_for_byte() -> None:
    assert texts(ODD, "a.json") == [ODD]
    assert texts(ODD + b"\n" + ODD + b"\n", "-") == [ODD, ODD]
    assert texts(b"[" + ODD + b" , " + ODD + b"]", "a.json") == [ODD, ODD]


def test_json_over_several_lines_is_one_definition() -> None:
    text = json.dumps({"id": "a", "payload": {"b": [1, 2]}}, indent=2).encode()
    assert texts(text, "stdin") == [text]


def test_places_are_lines_and_indexes() -> None:
    assert places(b'{"id":"a"}\n\n{"id":"b"}\n', "x.jsonl") == ["x.jsonl:1", "x.jsonl:3"]
    assert places(b'[{"id":"a"},{"id":"b"}]', "x.json") == ["x.json[0]", "x.json[1]"]
    assert places(b"# first\nid: a\n---\nid: b\n---\n# nothing\n", "x.yaml") == ["x.yaml:2", "x.yaml:4"]
    assert places(b"jobs:\n- id: a\n- id: b\n", "x.yaml") == ["x.yaml:2", "x.yaml:3"]


def test_the_line_of_a_yaml_field_is_found() -> None:
    text = b"id: a\nschedule:\n  cron: 61 * * * *\nafter:\n  - x\n  - y\n"
    (source,) = split(text, name="x.yaml")
    assert source.place_of("/schedule/cron") == "x.yaml:3"
    assert source.place_of("/after/1") == "x.yaml:6"
    assert source.place_of("/schedule/nothing") == "x.yaml:2"
    assert source.place_of("") == "x.yaml:1"


def test_a_place_without_yaml_is_that_of_the_definition() -> None:
    (source,) = split(b'{"id":"a"}', name="x.json")
    assert source.place_of("/id") == "x.json"


def test_yaml_words_stay_words() -> None:
    text = b"notify: {on: [dead]}\nat: 2026-12-24T18:00:00Z\nclock: 1:30\nyes: no\nn: 010\nf: 1e3\ntrue: false\nz: ~\n"
    (source,) = split(text, name="x.yml")
    assert json.loads(source.text) == {
        "notify": {"on": ["dead"]}, "at": "2026-12-24T18:00:00Z", "clock": "1:30", "yes": "no", "n": 10, "f": 1000.0,
        "true": False, "z": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    "data, name, where",
    [
        (b"id: [1\nb: 2", "x.yaml", "x.yaml:2"),
        (b"[1,", "x.json", "x.json"),
        (b"a: !!python/none x", "x.yaml", "x.yaml:1"),
    ],
)
def test_what_cannot_be_read_says_where(data: bytes, name: str, where: str) -> None:
    with pytest.raises(Fault) as caught:
        list(split(data, name=name))
    assert caught.value.exit_code == 1
    assert caught.value.message.startswith(where)


def test_a_missing_file_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(Fault, match="No such file"):
        read_sources(str(tmp_path / "nothing.yaml"))


def test_files_are_told_apart_by_suffix_and_content(tmp_path: Path) -> None:
    file = tmp_path / "jobs.txt"
    file.write_bytes(b"id: a\n---\nid: b\n")
    assert [json.loads(source.text)["id"] for source in read_sources(str(file))] == ["a", "b"]
