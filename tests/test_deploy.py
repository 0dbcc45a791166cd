"""The deployment files agree with the product: commands, variables and paths in them exist.

No container engine and no cluster is needed for that, and none of them is started.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from noontide.apps.cli.main import main

ROOT = Path(__file__).parents[1]
MADE_BY_OPERATORS = {"./connectors"}
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))
MANIFESTS = [
    document
    for path in sorted((ROOT / "deploy" / "kubernetes").glob("*.yaml"))
    for document in yaml.safe_load_all(path.read_text("utf-8"))
    if document
]


def containers(value: Any) -> Iterator[dict[str, Any]]:
    """Every container below a part of a manifest."""
    if isinstance(value, list):
        for each in value:
            yield from containers(each)
    elif isinstance(value, dict):
        for name, each in value.items():
            if name in ("containers", "initContainers"):
                yield from each
            else:
                yield from containers(each)


def commands() -> Iterator[tuple[str, list[str]]]:
    for name, service in COMPOSE["services"].items():
        if service["image"] == "noontide":
            yield f"compose: {name}", service["command"]
    for container in containers(MANIFESTS):
        yield f"kubernetes: {container['name']}", container["args"]


def parsed(arguments: list[str]) -> click.Context:
    """What the command line makes of them; nothing is run. Raises click.UsageError."""
    command: click.Command | None = main
    rest = list(arguments)
    while isinstance(command, click.Group):
        name = rest.pop(0)
        command = command.get_command(click.Context(command), name)
        assert command is not None, f"there is no command {name}"
    assert command is not None
    return command.make_context(arguments[0], rest)


@pytest.mark.parametrize("arguments", [pytest.param(found, id=where) for where, found in commands()])
def test_each_command_is_one(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOONTIDE_HISTORY_URL", "postgresql://noontide@postgres/noontide")
    parsed(arguments).close()


def test_a_command_that_is_none_would_be_noticed() -> None:
    with pytest.raises(click.UsageError, match="No such option"):
        parsed(["scheduler", "--date", "/var/lib/noontide"])


def test_each_variable_is_documented() -> None:
    files = [ROOT / "docker-compose.yml", *(ROOT / "deploy").rglob("*.yaml"), ROOT / "deploy" / "Dockerfile"]
    found = {name for path in files for name in re.findall(r"\bNOONTIDE_[A-Z_]*[A-Z]", path.read_text("utf-8"))}
    said = "".join(path.read_text("utf-8") for path in (ROOT / "docs").rglob("*.md"))
    assert {name for name in found if name not in said} == set()
    assert "NOONTIDE_INTERNAL_SECRET" in found


def test_services_wait_for_services_and_mount_what_is_there() -> None:
    services = COMPOSE["services"]
    for name, service in services.items():
        for other, condition in service.get("depends_on", {}).items():
            assert other in services, name
            if condition["condition"] == "service_healthy":
                assert "healthcheck" in services[other], f"{name} waits for the health of {other}, which tells none"
        assert {each["source"] for each in service.get("configs", [])} <= COMPOSE["configs"].keys()
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            known = source in COMPOSE["volumes"] or source in MADE_BY_OPERATORS or (ROOT / source).exists()
            assert known, f"{name}: {source}"
    assert (ROOT / services["topics"]["build"]["dockerfile"]).exists()


def test_what_is_for_this_machine_listens_on_this_machine() -> None:
    ports = [port for service in COMPOSE["services"].values() for port in service.get("ports", [])]
    assert ports
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == []
