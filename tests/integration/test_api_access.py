"""Tenants, tokens and users through the real API, broker and scheduler: the clients, the command line, the audit."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner, Result
from tests.adapters.oidc.issuer import AUDIENCE, ec_key, running_issuer
from tests.conftest import RunningKafka
from tests.integration.api_process import SECRET, ApiProcess
from tests.integration.installation import Installation, Seen, eventually
from tests.integration.scheduler_process import SchedulerProcess

from noontide.apps.cli.main import main
from noontide.client import (
    AsyncClient,
    Client,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    StaleVersion,
    Unauthorised,
)  # fmt: skip
from noontide.records.tokens import SECRET_CHARS

KEY = ec_key("k1")
PAYLOAD = "p4yload-nobody-may-log"
ROLES = {
    "billing": ("operator", "--tenant", "billing"),
    "orders": ("operator", "--tenant", "orders"),
    "both": ("operator", "--tenant", "billing", "--tenant", "orders"),
    "reader": ("viewer", "--tenant", "billing"),
    "root": ("admin", "--all-tenants"),
}


@dataclass(slots=True, kw_only=True)
class Scene:
    """An installation whose API asks who it is. tokens: by name."""

    installation: Installation
    api: ApiProcess
    scheduler: SchedulerProcess
    tokens: dict[str, str]
    user: str

    def client(self, name: str) -> Client:
        """With a token."""
        return Client(self.api.url, token=self.tokens.get(name, name))

    def run(self, *arguments: str, token: str | None = None, stdin: bytes | None = None) -> Result:
        """One command: over the API as somebody, or over Kafka."""
        at = {
            "NOONTIDE_KAFKA_BOOTSTRAP": self.installation.bootstrap,
            "NOONTIDE_PREFIX": self.installation.layout.prefix,
        }
        if token is not None:
            at = {"NOONTIDE_SERVER": self.api.url, "NOONTIDE_TOKEN": self.tokens[token]}
        return CliRunner().invoke(main, arguments, env={**at, "COLUMNS": "200"}, input=stdin)


@pytest.fixture(scope="module")
def scene(kafka: RunningKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder: Path = tmp_path_factory.mktemp("access")
    with (
        running_issuer(KEY) as issuer,
        Installation.create(kafka.bootstrap, "access.") as installation,
        SchedulerProcess(installation, folder / "data", secret=SECRET) as scheduler,
    ):
        oidc = ("--oidc-issuer", issuer.url, "--oidc-audience", AUDIENCE, "--log-level", "debug")
        api = ApiProcess(installation, folder, options=oidc)
        made = Scene(installation=installation, api=api, scheduler=scheduler, tokens={}, user=issuer.token(KEY))
        scheduler.start()
        for name, (role, *tenants) in ROLES.items():
            done = made.run("tokens", "create", name, "--role", role, *tenants)
            made.tokens[name] = done.stdout.strip()
        with api:
            scheduler.until_owner()
            yield made


def definition(job_id: str, **fields: object) -> dict[str, object]:
    return {"id": job_id, "schedule": "0 6 * * *", "target": "handler:x", "payload": {"card": PAYLOAD}, **fields}


def test_another_tenants_job_does_not_exist(scene: Scene) -> None:
    with scene.client("billing") as mine, scene.client("orders") as theirs, httpx.Client() as raw:
        job = mine.create_job(definition("t-1"))
        assert job.tenant == "billing"
        run_id = mine.trigger_job("t-1", payload={"card": PAYLOAD})
        asks: dict[str, Callable[[], object]] = {
            "get": lambda: theirs.get_job("t-1"),
            "change": lambda: theirs.change_job("t-1", {"note": "x"}),
            "delete": lambda: theirs.delete_job("t-1"),
            "pause": lambda: theirs.pause_job("t-1"),
            "trigger": lambda: theirs.trigger_job("t-1"),
            "next": lambda: theirs.next_times("t-1"),
            "executions": lambda: list(theirs.executions("t-1")),
            "run": lambda: theirs.get_run(run_id),
            "cancel": lambda: theirs.cancel_run(run_id),
            "retry": lambda: theirs.retry_run(run_id),
        }
        for name, ask in asks.items():
            with pytest.raises(NotFound) as refused:
                ask()
            assert "billing" not in str(refused.value), name
        headers = {"authorization": f"Bearer {scene.tokens['orders']}"}
        for path in ("/v1/jobs/t-1", "/v1/jobs/t-none"):
            answer = raw.get(scene.api.url + path, headers=headers)
            assert (answer.status_code, answer.json()["type"]) == (404, "urn:noontide:problem:not-found")
        assert [each.id for each in theirs.jobs()] == []
        assert [each.run_id for each in theirs.runs()] == []
        assert list(theirs.dead_letters()) == []
        assert theirs.redrive(run_ids=[run_id]).started == []
        assert mine.get_job("t-1").etag == job.etag
        assert mine.get_run(run_id).state in ("pending", "queued", "running")
        mine.cancel_run(run_id)


@pytest.mark.parametrize("name", ["orders", "both"])
def test_nobody_makes_or_takes_jobs_of_tenants_that_are_not_theirs(scene: Scene, name: str) -> None:
    with scene.client("root") as root, scene.client(name) as client:
        root.replace_job("t-2", definition("t-2", tenant="third"))
        with pytest.raises(Invalid, match="tenant"):
            client.create_job(definition("t-3", tenant="third"))
        with pytest.raises((Invalid, NotFound, Conflict)):
            client.replace_job("t-2", definition("t-2", tenant="orders"))
        assert client.redrive(run_ids=["t-2:20260101T000000Z"]).started == []
        lines = list(client.put_jobs([definition("t-2", tenant="orders"), definition("t-4", tenant="third")]))
        assert [line.accepted for line in lines] == [False, False]
        assert root.get_job("t-2").tenant == "third"


def test_a_token_for_two_tenants_works_for_both(scene: Scene) -> None:
    with scene.client("both") as client:
        made = {client.create_job(definition(f"t-{tenant}", tenant=tenant)).tenant for tenant in ("billing", "orders")}
        assert made == {"billing", "orders"}
        assert {job.tenant for job in client.jobs()} == {"billing", "orders"}
        client.pause_job("t-orders", note="why")
        client.delete_job("t-orders")


def test_roles_and_users(scene: Scene) -> None:
    with scene.client("reader") as reader, scene.client(scene.user) as user, scene.client("billing") as billing:
        with pytest.raises(Forbidden, match="operator"):
            reader.create_job(definition("t-5"))
        with pytest.raises(Forbidden):
            billing.configure("tenants", "billing", {"weight": 100})
        with pytest.raises(Forbidden):
            reader.workers()
        assert user.create_job(definition("t-6")).tenant == "billing"
        assert "t-6" in {job.id for job in reader.jobs()}
    with scene.client("root") as root:
        root.configure("tenants", "billing", {"weight": 2})
        assert root.configured("tenants")["billing"] == {"weight": 2}
    with Client(scene.api.url) as nobody, pytest.raises(Unauthorised):
        nobody.get_job("t-6")


def test_a_token_is_refused_as_soon_as_it_is_revoked(scene: Scene) -> None:
    text = scene.run("tokens", "create", "short", "--role", "viewer", "--tenant", "billing").stdout.strip()
    with scene.client(text) as client:
        eventually(lambda: _answers(client), what="the new token")
        assert scene.run("tokens", "revoke", "short").exit_code == 0
        eventually(lambda: not _answers(client), what="the end of the token")


def _answers(client: Client) -> bool:
    try:
        list(client.jobs())
    except Unauthorised:
        return False
    return True


def test_versions_and_keys(scene: Scene) -> None:
    with scene.client("billing") as client:
        first = client.create_job(definition("t-7"), idempotency_key="k-7")
        assert client.create_job(definition("t-7"), idempotency_key="k-7").etag == first.etag
        with pytest.raises(Conflict):
            client.create_job(definition("t-7", note="another"), idempotency_key="k-8")
        second = client.change_job("t-7", {"note": "x"}, if_match=first.etag)
        with pytest.raises(StaleVersion):
            client.change_job("t-7", {"note": "y"}, if_match=first.etag)
        assert second.definition["note"] == "x"
        assert client.resume_job(client.pause_job("t-7", note="later").id).definition["note"] == "later"


async def test_the_client_for_asyncio(scene: Scene) -> None:
    async with AsyncClient(scene.api.url, token=scene.tokens["billing"]) as client:
        lines = [line async for line in client.put_jobs(definition(f"t-a{number}") for number in range(25))]
        assert all(line.accepted for line in lines)
        assert {line.id for line in lines} <= {job.id async for job in client.jobs(text="t-a")}


def test_the_command_line_over_the_api(scene: Scene) -> None:
    put = scene.run("jobs", "put", "-", "--json", token="billing", stdin=json.dumps(definition("c-1")).encode())
    assert json.loads(put.stdout)["jobs"][0]["id"] == "c-1", put.output
    added = scene.run("jobs", "add", "--id", "c-2", "--every", "1h", "--target", "handler:x", token="billing")
    assert "1 job accepted" in added.stdout, added.output
    over_api = json.loads(scene.run("jobs", "get", "c-1", "--json", token="billing").stdout)
    over_kafka = json.loads(scene.run("jobs", "get", "c-1", "--json").stdout)
    assert over_api == {**over_kafka, "origin": None}
    listed = scene.run("jobs", "list", "--limit", "1", token="billing")
    assert "there are more" in listed.stderr
    assert scene.run("jobs", "pause", "c-1", "--note", "x", token="billing").stdout == "c-1 is paused\n"
    assert scene.run("jobs", "resume", "c-1", token="billing").stdout == "c-1 is active\n"
    run_id = json.loads(scene.run("jobs", "trigger", "c-1", "--json", token="billing").stdout)["run_id"]
    assert run_id in scene.run("runs", "list", "--live", token="billing").stdout
    assert run_id in scene.run("runs", "show", run_id, token="billing").stdout
    assert scene.run("runs", "cancel", run_id, token="billing").exit_code == 0
    assert "cancelled" in scene.run("runs", "list", "--job", "c-1", token="billing").stdout
    assert scene.run("jobs", "delete", "c-1", "c-2", token="billing").stdout == "2 jobs deleted\n"


def test_the_command_line_says_why_it_was_refused(scene: Scene) -> None:
    foreign = scene.run("jobs", "get", "t-1", token="orders")
    assert (foreign.exit_code, "there is no job 't-1'" in foreign.stderr) == (1, True), foreign.output
    broken = scene.run("jobs", "put", "-", token="billing", stdin=b'{"id": "c-3", "schedule": "61 * * * *"}')
    assert (broken.exit_code, "61" in broken.stderr) == (1, True)
    viewer = scene.run("jobs", "delete", "t-1", token="reader")
    assert (viewer.exit_code, "operator" in viewer.stderr) == (1, True)
    config = scene.run("config", "put", "calendar/x", '{"dates": []}', token="billing")
    assert (config.exit_code, "all tenants" in config.stderr or "admin" in config.stderr) == (1, True)


def test_the_audit_names_who_changed_what(scene: Scene) -> None:
    with scene.client(scene.user) as user, scene.client("root") as root:
        user.create_job(definition("t-8"))
        user.delete_job("t-8")
        root.configure("calendars", "de", {"dates": ["2027-01-01"]})
    made, deleted = (each.document for each in scene.installation.log("audit").of_key("t-8", 2))
    assert (made["action"], made["actor"], deleted["action"]) == ("created", "user:ada", "deleted")
    (configured,) = (each.document for each in scene.installation.log("audit").of_key("calendar/de"))
    assert (configured["actor"], configured["after"]) == ("token:root", {"dates": ["2027-01-01"]})


def test_another_tenants_job_over_a_topic(scene: Scene) -> None:
    """A domain that speaks for one tenant asks for a job of another, by every kind of request."""
    topics, log = scene.installation, scene.installation.log("rejected")

    def refused_by_now() -> bool:
        topics.request("t-9", definition("t-9", tenant="billing"))
        return log.count("t-9") > 0

    with scene.client("billing") as mine:
        mine.replace_job("t-9", definition("t-9"))
        topics.configure("domain/public", {"tenants": ["orders"]})
        eventually(refused_by_now, what="the scheduler knows whom the domain speaks for")  # until then it may ask
        job = mine.get_job("t-9")
        asked = {topics.request("t-9", {}, kind=kind) for kind in ("delete", "trigger", "cancel")}
        asked.add(topics.request("t-9", definition("t-9", tenant="orders"), kind="define"))
        reasons = reasons_by_origin(log.until(lambda all_: asked <= reasons_by_origin(all_).keys()))
        assert "billing" not in "".join(reasons[each] for each in asked)
        assert mine.get_job("t-9").etag == job.etag


def reasons_by_origin(rejected: list[Seen]) -> dict[tuple[int, int], str]:
    """Why requests were refused, by partition and offset."""
    found: dict[tuple[int, int], str] = {}
    for document in (each.document for each in rejected):
        origin = document["origin"]
        assert isinstance(origin, dict)
        found[origin["partition"], origin["offset"]] = str(document["reason"])
    return found


def test_no_log_has_a_payload_or_a_token(scene: Scene) -> None:
    """Last, over everything that the tests above made the processes do."""
    logged = scene.api.log + scene.scheduler.log
    assert "API at" in logged
    for secret in (PAYLOAD, scene.user, *(text[-SECRET_CHARS:] for text in scene.tokens.values())):
        assert secret not in logged
