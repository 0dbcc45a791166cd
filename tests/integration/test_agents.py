"""`noontide agents` on a real broker: alerts reach webhooks, mail and topics; a kill costs nothing."""

from __future__ import annotations

import base64
import hashlib
import hmac
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import orjson
import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.handlers import Message as MessageHandler
from tests.conftest import RunningKafka
from tests.integration.installation import Installation, eventually

from noontide.adapters.system_clock import wall_now_ms
from noontide.core.instants import format_instant
from noontide.testing.child_process import ChildProcess, noontide

KEY = b"a secret of a channel"
WITHIN_S = 40


class Webhook:
    """A local webhook; it fails once, so that the alert is sent again."""

    def __init__(self) -> None:
        self.posts: list[tuple[str, dict[str, str], bytes]] = []
        self.failures = 1
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                fails = hook.failures > 0
                hook.failures -= 1
                if not fails:
                    hook.posts.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
                self.send_response(503 if fails else 204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Nothing is logged."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def texts(self) -> set[str]:
        """What the chat was told."""
        return {str(orjson.loads(body)["text"]) for where, _, body in self.posts if where == "/slack"}

    def kinds(self, path: str = "/json") -> list[str]:
        return [str(orjson.loads(body)["kind"]) for where, _, body in self.posts if where == path]


class Mailbox(MessageHandler):
    """Keeps what is sent to it."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[Message] = []

    def handle_message(self, message: Message) -> None:
        self.messages.append(message)


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    hook = Webhook()
    try:
        yield hook
    finally:
        hook.server.shutdown()
        hook.server.server_close()


@pytest.fixture
def mail() -> Iterator[tuple[Mailbox, str]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mailbox = Mailbox()
    controller = Controller(mailbox, hostname="127.0.0.1", port=port)
    controller.start()
    try:
        yield mailbox, f"127.0.0.1:{port}"
    finally:
        controller.stop()


class Site:
    """An installation whose executions are written by the test, and two processes of agents that can be killed."""

    def __init__(self, installation: Installation, folder: Path, smtp: str) -> None:
        self.installation = installation
        self.ended: Counter[tuple[str, str]] = Counter()
        self.agents = [self._process(folder, name, smtp) for name in ("first", "second")]

    def _process(self, folder: Path, name: str, smtp: str) -> ChildProcess:
        command = noontide(
            "agents", "--bootstrap", self.installation.bootstrap, "--prefix", self.installation.layout.prefix,
            "--data", str(folder / name), "--smtp", smtp, "--metrics-port", "0",
        )  # fmt: skip
        variables = {"NOONTIDE_CHANNEL_SECRET_HOOKS": KEY.decode()}
        return ChildProcess(command=command, log=folder / f"{name}.log", variables=variables)

    def end(self, job: str, state: str, **fields: object) -> None:
        """A run of a job has ended, in the partition of its slot."""
        layout, now = self.installation.layout, format_instant(wall_now_ms())
        run_id = f"{job}:{self.ended.total()}"
        value = {"run_id": run_id, "job_id": job, "tenant": "t", "due": now, "state": state, "ended_at": now, **fields}
        self.installation.produce(
            self.installation.name("executions"), key=run_id.encode(), value=orjson.dumps(value),
            partition=layout.slot_of(layout.partition_of(job)),
        )  # fmt: skip
        self.ended[job, state] += 1

    def counted(self) -> Counter[tuple[str, str]]:
        """What the latest rows of jobs come to, over a day."""
        latest = {seen.key: seen.value for seen in self.installation.log("agents-state").look()}
        found: Counter[tuple[str, str]] = Counter()
        for key, value in latest.items():
            if (key or b"").startswith(b"jobs/24h/") and value is not None:
                for job, tally in orjson.loads(value)["jobs"]["t"].items():
                    found.update({(job, state): tally[state] for state in ("dead", "succeeded") if state in tally})
        return found

    def define(self, job: str, **notify: object) -> None:
        """A job that notifies somebody."""
        document = {
            "id": job,
            "tenant": "t",
            "schedule": {"every": "PT1H"},
            "target": {"handler": "x"},
            "notify": notify,
        }
        at = self.installation.layout.partition_of(job)
        self.installation.produce(
            self.installation.name("jobs"), key=job.encode(), value=orjson.dumps(document), partition=at
        )


def test_alerts_reach_everybody_once_and_tables_survive_a_kill(
    kafka: RunningKafka, prefix: str, tmp_path: Path, webhook: Webhook, mail: tuple[Mailbox, str]
) -> None:
    mailbox, smtp = mail
    with Installation.create(kafka.bootstrap, prefix) as installation:
        told = installation.create_topic("told")
        channels: dict[str, dict[str, Any]] = {
            "hook": {"url": f"{webhook.url}/json", "secret": "hooks"},
            "chat": {"url": f"{webhook.url}/slack", "format": "slack"},
            "mail": {"email": ["oncall@example.org"]},
            "topic": {"topic": told},
            "foreign": {"url": f"{webhook.url}/foreign", "tenants": ["other"]},
        }
        for name, document in channels.items():
            installation.configure(f"channel/{name}", document)
        site = Site(installation, tmp_path, smtp)
        site.define("sync", on=["dead", "streak", "recovered"], to=list(channels))
        site.define("quiet", on=["nothing_ran"], nothing_ran_after="PT1S", to=["hook"])
        first, second = site.agents
        with first, second:
            first.start()
            second.start()
            site.end("sync", "dead", reason="timeout")
            site.end("other", "dead")
            _aborted(installation)
            site.end("sync", "dead")
            eventually(lambda: webhook.kinds().count("dead") == 2, within_s=WITHIN_S, what="two alerts at the webhook")
            eventually(lambda: len(mailbox.messages) == 2, within_s=WITHIN_S, what="two e-mails")
            eventually(lambda: site.counted() == site.ended, within_s=WITHIN_S, what=f"{site.ended} in the table")
            second.until_logged("agents_ready")
            first.kill()

            site.end("sync", "dead")
            site.end("other", "dead")
            site.end("sync", "succeeded")
            eventually(lambda: "recovered" in webhook.kinds(), within_s=WITHIN_S, what="the recovery")
            _say_overdue_twice(installation)
            eventually(lambda: "overdue" in webhook.kinds(), within_s=WITHIN_S, what="the owner's alert")
            eventually(lambda: "nothing_ran" in webhook.kinds(), within_s=WITHIN_S, what="the silence")
            said = {"sync: run sync:0 is dead: timeout", "sync: works again after 3 dead runs"}
            eventually(lambda: said <= webhook.texts(), within_s=WITHIN_S, what="both in the chat")
            eventually(lambda: site.counted() == site.ended, within_s=WITHIN_S, what=f"{site.ended} in the table")
        alerts = [seen.document for seen in installation.log("alerts").of_key("sync", 5)]
        streak = next(alert for alert in alerts if alert["kind"] == "streak")
        assert streak["streak"] == 3
        assert {str(alert["alert_id"]) for alert in alerts} == {
            str(seen.document["alert_id"]) for seen in installation.log(told).of_key("sync", 5)
        }
        assert not [alert for alert in alerts if "aborted" in str(alert["run_id"])]
    _check_webhook(webhook)
    assert "sync: run sync:0 is dead: timeout" in {message["subject"] for message in mailbox.messages}


def _say_overdue_twice(installation: Installation) -> None:
    """As an owner does whose commit was in doubt."""
    overdue = {
        "alert_id": "overdue:late:1", "kind": "overdue", "job_id": "late", "tenant": "t", "to": ["hook"], "at": 1,
    }  # fmt: skip
    for _ in range(2):
        installation.produce(installation.name("alerts"), key=b"late", value=orjson.dumps(overdue), partition=0)


def _check_webhook(webhook: Webhook) -> None:
    assert not webhook.kinds("/foreign")
    bodies = [orjson.loads(body) for path, _, body in webhook.posts if path == "/json"]
    ids = [str(body["alert_id"]) for body in bodies]
    assert {body["kind"] for body in bodies} == {"dead", "streak", "recovered", "overdue", "nothing_ran"}
    assert len(set(ids)) == 7
    assert ids.count("overdue:late:1") == 1
    _, headers, body = next(post for post in webhook.posts if post[0] == "/json")
    signed = b".".join((headers["webhook-id"].encode(), headers["webhook-timestamp"].encode(), body))
    expected = base64.b64encode(hmac.digest(KEY, signed, hashlib.sha256)).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"


def _aborted(installation: Installation) -> None:
    """An execution in a transaction that is aborted: nobody may hear of it."""
    producer = ck.Producer(
        {"bootstrap.servers": installation.bootstrap, "transactional.id": f"{installation.layout.prefix}abort"}
    )
    producer.init_transactions(20)
    producer.begin_transaction()
    now = format_instant(wall_now_ms())
    value = {"run_id": "sync:aborted", "job_id": "sync", "tenant": "t", "due": now, "state": "dead", "ended_at": now}
    layout = installation.layout
    partition = layout.slot_of(layout.partition_of("sync"))
    producer.produce(installation.name("executions"), orjson.dumps(value), b"sync:aborted", partition=partition)
    producer.flush(20)
    producer.abort_transaction(20)
