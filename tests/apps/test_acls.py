"""The list of permissions: who may write what is what the topic files say."""

from __future__ import annotations

import json

from click.testing import CliRunner

from noontide.apps.acls import Acl, acls
from noontide.apps.cli.topics import topics
from noontide.records.topics import DEFAULT_LANES, Layout, load_catalogue

FOUND = acls(Layout(), domains=("public", "orders"), lanes=DEFAULT_LANES)


def who_may(operation: str, topic: str) -> set[str]:
    """Roles that may do something with a topic."""

    def covers(acl: Acl) -> bool:
        return acl.name == topic or (acl.prefixed and topic.startswith(acl.name))

    return {acl.role for acl in FOUND if acl.resource == "topic" and operation in acl.operations and covers(acl)}


def test_every_topic_can_be_written_and_read_by_somebody() -> None:
    for file in load_catalogue():
        name = Layout().prefix + file.template.replace("<lane>", "default").replace("<domain>", "public")
        assert who_may("Write", name), name
        assert who_may("Read", name), name


def test_what_decides_jobs_has_one_writer() -> None:
    for topic in ("jobs", "state", "leases", "executions", "results", "dead-letters", "signals"):
        assert who_may("Write", f"noontide.{topic}") == {"scheduler"}
    assert who_may("Write", "noontide.requests.orders") == {"service:orders"}
    assert who_may("Write", "noontide.requests.api") == {"api"}
    assert "worker" not in who_may("Read", "noontide.jobs")


def test_the_command_prints_arguments_of_kafkas_tool() -> None:
    done = CliRunner().invoke(topics, ["acls", "--domains", "orders", "--principal", "User:{role}"])
    assert done.exit_code == 0
    who = "--add --allow-principal User:service-orders"
    line = f"{who} --operation Write --operation Describe --topic noontide.requests.orders"
    assert line in done.output.splitlines()
    as_json = CliRunner().invoke(topics, ["acls", "--json"])
    assert {json.loads(each)["role"] for each in as_json.output.splitlines()} >= {
        "scheduler",
        "worker",
        "api",
    }
