"""Every process through TLS and SASL, with users that may do what the documentation says and nothing else."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner, Result
from tests.integration.installation import eventually
from tests.integration.secured_broker import PASSWORDS, SecuredKafka, granted, secured_kafka
from tests.integration.worker_process import HANDLERS

from noontide.apps.cli.main import main
from noontide.records.topics import Layout
from noontide.testing.child_process import ChildProcess, noontide

PREFIX = "sec."
SECRET = "a secret of the test"
PAYLOAD = "p4yload-nobody-may-log"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    with secured_kafka(tmp_path_factory.mktemp("secured")) as running:
        running.permit(granted(Layout(prefix=PREFIX, slots=2), targets="orders."))
        yield running


def variables(secured: SecuredKafka, user: str, **changes: str) -> dict[str, str]:
    """The settings of a user as variables."""
    found = {f"NOONTIDE_KAFKA_SECURITY_{_variable(name)}": value for name, value in secured.settings(user).items()}
    return {**found, "NOONTIDE_KAFKA_BOOTSTRAP": secured.address, "NOONTIDE_PREFIX": PREFIX, **changes}


def _variable(name: str) -> str:
    return "PROTOCOL" if name == "security.protocol" else name.upper().replace(".", "_")


def run(environment: Mapping[str, str], *arguments: str, stdin: str | None = None) -> Result:
    """One command as somebody."""
    return CliRunner().invoke(main, arguments, env=dict(environment), input=stdin)


@pytest.mark.slow
def test_every_process_through_tls_and_sasl_with_its_own_rights(secured: SecuredKafka, tmp_path: Path) -> None:
    admin = variables(secured, "admin")
    made = run(admin, "topics", "apply", "--slots", "2", "--domains", "api,public,billing")
    assert made.exit_code == 0, made.output
    operator = variables(secured, "operator")
    done = run(operator, "config", "put", "domain/billing", '{"tenants": ["billing"]}')
    assert done.exit_code == 0, done.output

    (tmp_path / "handlers_of_a_test.py").write_text(HANDLERS)
    where = ("--bootstrap", secured.address, "--prefix", PREFIX, "--log-level", "debug")
    data = ("--data", str(tmp_path / "data"), "--kafka-config", str(secured.file("scheduler", tmp_path)))
    scheduler = ChildProcess(
        command=noontide("scheduler", *where, *data),
        log=tmp_path / "scheduler.log",
        variables={"NOONTIDE_INTERNAL_SECRET": SECRET},
    )
    worker = ChildProcess(
        command=noontide("worker", "handlers_of_a_test", *where, "--no-http"),
        log=tmp_path / "worker.log",
        variables={**variables(secured, "worker"), "PYTHONPATH": str(tmp_path)},
    )
    api = ChildProcess(
        command=noontide("api", *where, "--port", "0", "--no-access"),
        log=tmp_path / "api.log",
        variables=variables(secured, "api", NOONTIDE_INTERNAL_SECRET=SECRET),
    )
    agents = ChildProcess(
        command=noontide("agents", *where, "--data", str(tmp_path / "agents")),
        log=tmp_path / "agents.log",
        variables=variables(secured, "agents"),
    )
    with scheduler.start(), worker.start(), api.start(), agents.start():
        scheduler.until_logged(": owned after", count=2)
        billing = variables(secured, "billing")
        document: dict[str, object] = {
            "id": "b-1",
            "tenant": "billing",
            "schedule": {"every": "PT2S"},
            "timing": "exact",
        }
        document |= {"target": "handler:noop", "payload": {"card": PAYLOAD}}
        done = run(billing, "jobs", "put", "-", "--domain", "billing", stdin=json.dumps(document))
        assert done.exit_code == 0, done.output + scheduler.text[-2_000:]
        eventually(
            lambda: "succeeded" in run(operator, "runs", "list", "--job", "b-1", "--json").stdout, what="the run"
        )
        api.until_logged("API at ")
        over_the_api(api.text)
        for refused in ("public", "api"):
            other = run(billing, "jobs", "put", "-", "--domain", refused, stdin=json.dumps(document))
            assert other.exit_code != 0, refused
            assert "uthoriz" in other.output
        foreign = run(billing, "jobs", "put", "-", "--domain", "billing", stdin=json.dumps({**document, "tenant": "x"}))
        assert (foreign.exit_code, "/tenant" in foreign.output or "/id" in foreign.output) == (1, True), foreign.output
        assert [each.terminate() for each in (agents, api, scheduler, worker)] == [0, 0, 0, 0]
    logged = scheduler.text + worker.text + api.text + agents.text
    assert "slot 0" in logged
    for secret in (PAYLOAD, *PASSWORDS.values()):
        assert secret not in logged


def over_the_api(log: str) -> None:
    """A job is made and runs, and everything that a node reads can be read."""
    found = re.search(r"API at (http://\S+)", log)
    assert found is not None, log
    with httpx.Client(base_url=found[1], timeout=30) as client:
        made = client.post("/v1/jobs", json={"id": "a-1", "schedule": {"every": "P1D"}, "target": "handler:noop"})
        assert made.status_code == 201, made.text
        run_id = client.post("/v1/jobs/a-1/trigger").json()["run_id"]
        eventually(lambda: client.get(f"/v1/runs/{run_id}").json()["state"] == "succeeded", what="the run by hand")
        changed = client.put("/v1/tenants/billing", json={"weight": 2})
        assert changed.status_code == 200, changed.text
        for path in ("runs", "dead-letters", "workers", "partitions", "alerts", "stats", "tenants", "forecast"):
            answer = client.get(f"/v1/{path}")
            assert answer.status_code == 200, f"{path}: {answer.text}"
        counted = "what the agents counted arrives"
        eventually(
            lambda: {each["tenant"] for each in client.get("/v1/stats").json()["items"]} >= {"billing"}, what=counted
        )


@pytest.mark.slow
def test_a_wrong_password_is_said_in_one_line_without_it(secured: SecuredKafka) -> None:
    wrong = variables(secured, "operator", NOONTIDE_KAFKA_SECURITY_SASL_PASSWORD="wr0ng-s3cret")
    done = run(wrong, "jobs", "list")
    assert done.exit_code != 0
    assert "wr0ng" not in done.output
    assert "uthentic" in done.output, done.output
    assert os.environ.get("NOONTIDE_KAFKA_SECURITY_SASL_PASSWORD") is None
