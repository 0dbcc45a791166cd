"""How an alert reaches people: a signed webhook, a Slack-compatible one, an e-mail, or a topic.

A channel is `channel/<name>` of the configuration: {"url": ..., "format": "json" | "slack", "secret": name},
{"email": [addresses]} or {"topic": name}, each with "tenants". Secrets are variables NOONTIDE_CHANNEL_SECRET_<NAME>.
"""

from __future__ import annotations

import asyncio
import logging
import os
import smtplib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from email.message import EmailMessage
from typing import Final

import httpx
import orjson

from noontide.adapters.http.signing import signing_headers
from noontide.adapters.system_clock import wall_now_ms
from noontide.core.errors import NoontideError
from noontide.core.instants import format_instant

REASON_MAX: Final = 200
"""Characters of why a channel was not told."""
_SECRET_VARIABLE: Final = "NOONTIDE_CHANNEL_SECRET_"
Alert = Mapping[str, object]
Publish = Callable[[str, bytes, bytes], Awaitable[None]]
"""Topic, key, value."""

log = logging.getLogger("noontide.agents")


class NotTold(NoontideError):
    """A channel did not take an alert."""


_TROUBLE: Final = (NotTold, httpx.HTTPError, httpx.InvalidURL, OSError, smtplib.SMTPException)


@dataclass(frozen=True, slots=True, kw_only=True)
class MailSettings:
    """The SMTP server that takes e-mail. user, password: None = none is asked for."""

    host: str = "127.0.0.1"
    port: int = 25
    sender: str = "noontide@localhost"
    user: str | None = None
    password: str | None = None
    starttls: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TellSettings:
    """How long a channel is tried for one alert. What comes behind in the same batch waits so long.

    attempts_max: first one included. timeout_ms: of one attempt without an answer. pause_ms: before the second attempt;
    each pause is twice the one before, up to pause_max_ms.
    """

    attempts_max: int = 5
    timeout_ms: int = 10_000
    pause_ms: int = 500
    pause_max_ms: int = 30_000

    def pauses_ms(self) -> list[int]:
        """Between the attempts."""
        return [min(self.pause_ms << step, self.pause_max_ms) for step in range(self.attempts_max - 1)]


class Channels:
    """Sends alerts. `document` gives a channel's configuration by name, None when there is none."""

    def __init__(
        self,
        document: Callable[[str], Mapping[str, object] | None],
        publish: Publish,
        *,
        mail: MailSettings,
        limits: TellSettings,
    ) -> None:
        self._document = document
        self._publish = publish
        self._mail = mail
        self._limits = limits
        self._client = httpx.AsyncClient(timeout=limits.timeout_ms / 1000, follow_redirects=False)

    async def close(self) -> None:
        """End its connections."""
        await self._client.aclose()

    async def tell(self, alert: Alert) -> dict[str, str | None]:
        """Send an alert to all its channels, several attempts each; by channel None, or why it did not take it."""
        names = alert.get("to")
        wanted = list(dict.fromkeys(map(str, names))) if isinstance(names, list) else []
        outcomes = await asyncio.gather(*(self._insist(name, alert) for name in wanted))
        return dict(zip(wanted, outcomes, strict=True))

    async def _insist(self, name: str, alert: Alert) -> str | None:
        pauses_ms = iter(self._limits.pauses_ms())
        while True:
            try:
                await self._send(name, alert)
            except _TROUBLE as error:
                pause_ms = None if isinstance(error, NotTold) else next(pauses_ms, None)
                log.warning("alert_not_sent channel=%s alert=%s: %s", name, alert["alert_id"], error)
                if pause_ms is None:
                    log.error("alert_given_up channel=%s alert=%s: %s", name, alert["alert_id"], error)
                    return str(error)[:REASON_MAX] or type(error).__name__
                await asyncio.sleep(pause_ms / 1000)
            else:
                log.info("alert_sent channel=%s alert=%s", name, alert["alert_id"])
                return None

    async def _send(self, name: str, alert: Alert) -> None:
        channel = self._document(name)
        if channel is None:
            raise NotTold("there is no such channel")
        tenants = channel.get("tenants", "*")
        if tenants != "*" and not (isinstance(tenants, list) and ("*" in tenants or alert["tenant"] in tenants)):
            raise NotTold(f"the channel is not for tenant {alert['tenant']}")
        match channel:
            case {"url": str(url)}:
                await self._post(url, channel, alert)
            case {"email": list(addresses)}:
                await asyncio.to_thread(self._mail_to, [str(each) for each in addresses], alert)
            case {"topic": str(topic)}:
                await self._publish(topic, str(alert["job_id"]).encode(), orjson.dumps(alert))
            case _:
                raise NotTold("the channel has neither url nor email nor topic")

    async def _post(self, url: str, channel: Mapping[str, object], alert: Alert) -> None:
        document = {"text": sentence(alert)} if channel.get("format") == "slack" else dict(alert)
        body = orjson.dumps(document)
        headers = [(b"content-type", b"application/json"), (b"idempotency-key", str(alert["alert_id"]).encode())]
        if secret := channel.get("secret"):
            key = os.environ.get(_SECRET_VARIABLE + str(secret).upper().replace("-", "_"))
            if key is None:
                raise NotTold(f"the secret {secret} is not in the environment")
            message_id = str(alert["alert_id"])
            headers += signing_headers(key.encode(), run_id=message_id, now_s=wall_now_ms() // 1000, body=body)
        answer = await self._client.post(url, content=body, headers=headers)
        if 400 <= answer.status_code < 500 and answer.status_code not in (408, 425, 429):
            raise NotTold(f"HTTP {answer.status_code}")
        if answer.status_code >= 300:
            raise httpx.TransportError(f"HTTP {answer.status_code}")

    def _mail_to(self, addresses: list[str], alert: Alert) -> None:
        message = EmailMessage()
        message["From"], message["To"] = self._mail.sender, ", ".join(addresses)
        message["Subject"] = sentence(alert).splitlines()[0][:200]
        message["X-Noontide-Alert"] = str(alert["alert_id"])
        message.set_content(sentence(alert) + "\n\n" + orjson.dumps(dict(alert), option=orjson.OPT_INDENT_2).decode())
        with smtplib.SMTP(self._mail.host, self._mail.port, timeout=self._limits.timeout_ms / 1000) as server:
            if self._mail.starttls:
                server.starttls()
            if self._mail.user is not None:
                server.login(self._mail.user, self._mail.password or "")
            server.send_message(message)


def sentence(alert: Alert) -> str:
    """The alert in words."""
    job, run = alert["job_id"], alert.get("run_id")
    reason = f": {alert['reason']}" if alert.get("reason") else ""
    match alert["kind"]:
        case "dead":
            return f"{job}: run {run} is dead{reason}"
        case "streak":
            return f"{job}: {alert.get('streak')} runs in a row are dead{reason}"
        case "recovered":
            return f"{job}: works again after {alert.get('streak')} dead runs"
        case "late":
            return f"{job}: run {run} began {_seconds(alert.get('late_ms'))} s late"
        case "lease_lost":
            return f"{job}: run {run} lost {alert.get('count')} leases{reason}"
        case "nothing_ran":
            return f"{job}: nothing has run since {_instant(alert.get('last_ms'))}"
        case "overdue":
            return f"{job}: run {run} is overdue{reason}"
        case kind:
            return f"{job}: {kind}{reason}"


def _seconds(ms: object) -> str:
    return f"{ms / 1000:.0f}" if isinstance(ms, int) else "?"


def _instant(ms: object) -> str:
    return format_instant(ms) if isinstance(ms, int) else "?"
