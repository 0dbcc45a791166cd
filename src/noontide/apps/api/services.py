"""What the routes work with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from fastapi import Request

from noontide.adapters.oidc.login import OidcLogin
from noontide.adapters.system_clock import wall_now_ms
from noontide.apps.agents_board import AgentsBoard
from noontide.apps.api.archive import Archive
from noontide.apps.api.leasing import Leasing
from noontide.apps.api.owners import Owners
from noontide.apps.api.settings import ApiSettings
from noontide.apps.api.writing import Writer
from noontide.records.config import ConfigView
from noontide.records.topics import Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Everything outside of the application.

    config: what operators have configured, as this node has read it. now_ms: the date, for previews and for checks
    that the owner makes again. topic_exists: asks the brokers, and blocks. result_of: the record on `results` of a run
    (its id, and when it ended, ms); blocks. login: lets browsers in at an issuer, if there is one for them. agents:
    what they say. owners, writer, leasing, agents: None in tests without a broker. archive: executions beyond
    those that owners know; None when no history is configured.
    """

    layout: Layout
    config: Callable[[], ConfigView]
    now_ms: Callable[[], int] = field(default=wall_now_ms)
    owners: Owners | None = None
    topic_exists: Callable[[str], bool] = field(default=lambda _topic: True)
    result_of: Callable[[str, int], bytes | None] = field(default=lambda _run_id, _ended_ms: None)
    login: OidcLogin | None = None
    writer: Writer | None = None
    leasing: Leasing | None = None
    agents: AgentsBoard | None = None
    archive: Archive | None = None


def services_of(request: Request) -> Services:
    """The services of the application."""
    services = request.app.state.services
    assert isinstance(services, Services)
    return services


def settings_of(request: Request) -> ApiSettings:
    """The limits of the application."""
    settings = request.app.state.settings
    assert isinstance(settings, ApiSettings)
    return settings


def leasing_of(request: Request) -> Leasing:
    """What takes runs for workers in other languages."""
    leasing = services_of(request).leasing
    assert leasing is not None
    return leasing


def owners_of(request: Request) -> Owners:
    """Who can be asked."""
    owners = services_of(request).owners
    assert owners is not None
    return owners


def writer_of(request: Request) -> Writer:
    """What makes requests."""
    writer = services_of(request).writer
    assert writer is not None
    return writer
