"""The data folder: one user at a time, orphans are ended, nobody else is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from noontide.adapters.kafka.embedded import EmbeddedKafkaError
from noontide.adapters.kafka.embedded.folder import FREE_DISK_MIN_BYTES, MAIN_CLASS, DataFolder, command_line

WAITS = "print('up', flush=True); import signal; signal.pause()"


class Usage(NamedTuple):
    total: int
    used: int
    free: int


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[DataFolder]:
    found = DataFolder(path=tmp_path / "data")
    yield found
    found.release()


def waiting_process(*arguments: str) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", WAITS, *arguments], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout as output:
        assert output.readline() == "up\n"
    return process


def test_the_second_user_is_told_who_the_first_is(folder: DataFolder) -> None:
    folder.acquire()
    with pytest.raises(EmbeddedKafkaError, match=rf"data is in use by process {os.getpid()}: stop it"):
        DataFolder(path=folder.path).acquire()


def test_a_released_folder_can_be_taken(folder: DataFolder) -> None:
    folder.acquire()
    folder.release()
    other = DataFolder(path=folder.path)
    other.acquire()
    other.release()


def test_no_disk_space(folder: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(0, 0, FREE_DISK_MIN_BYTES - 1))
    with pytest.raises(EmbeddedKafkaError, match="no disk space for data folder .*: 255 MB free, 256 MB needed"):
        folder.acquire()


def test_just_enough_disk_space(folder: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(0, 0, FREE_DISK_MIN_BYTES))
    folder.acquire()
    assert (folder.path / "lock").read_text() == str(os.getpid())


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EmbeddedKafkaError, match="cannot use data folder .*/file/data: Not a directory"):
        DataFolder(path=tmp_path / "file" / "data").acquire()


def test_an_orphan_is_ended(folder: DataFolder) -> None:
    broker = folder.broker(0)
    broker.prepare()
    with waiting_process(MAIN_CLASS, str(broker.properties)) as orphan:
        broker.pid_file.write_text(str(orphan.pid))
        broker.end_orphan()
        assert orphan.wait() != 0
    assert not broker.pid_file.exists()


@pytest.mark.parametrize("arguments", [(), (MAIN_CLASS, "/elsewhere/server.properties")])
def test_a_process_that_only_got_the_same_id_is_left_alone(folder: DataFolder, arguments: tuple[str, ...]) -> None:
    broker = folder.broker(0)
    broker.prepare()
    with waiting_process(*arguments) as stranger:
        broker.pid_file.write_text(str(stranger.pid))
        broker.end_orphan()
        assert stranger.poll() is None
        stranger.kill()


@pytest.mark.parametrize("text", ["", "not a number"])
def test_a_torn_pid_file_is_no_obstacle(folder: DataFolder, text: str) -> None:
    broker = folder.broker(0)
    broker.prepare()
    broker.pid_file.write_text(text)
    broker.end_orphan()
    assert not broker.pid_file.exists()


def test_command_line_of_this_process_and_of_none() -> None:
    assert "pytest" in command_line(os.getpid())
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
    assert command_line(gone.pid) == ""


def test_ports_are_remembered(folder: DataFolder) -> None:
    folder.acquire()
    assert folder.remembered_ports() == {}
    folder.remember_ports({"broker-1": 23456})
    assert DataFolder(path=folder.path).remembered_ports() == {"broker-1": 23456}


def test_a_torn_ports_file_is_as_none(folder: DataFolder) -> None:
    folder.acquire()
    (folder.path / "ports.json").write_text('{"broker-1": 2')
    assert folder.remembered_ports() == {}


def test_a_long_log_is_set_aside(folder: DataFolder) -> None:
    broker = folder.broker(0)
    broker.prepare()
    with broker.log.open("wb") as log:
        log.truncate((16 << 20) + 1)
    broker.prepare()
    assert not broker.log.exists()
    assert broker.log.with_suffix(".log.1").stat().st_size == (16 << 20) + 1
