"""What the routes work with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from fastapi import Request

from noontide.adapters.system_clock import wall_now_ms
from noontide.apps.api.settings import ApiSettings
from noontide.records.config import ConfigView
from noontide.records.topics import Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Everything outside of the application. config: what operators have configured, as this node has read it."""

    layout: Layout
    config: Callable[[], ConfigView]
    now_ms: Callable[[], int] = field(default=wall_now_ms)


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
