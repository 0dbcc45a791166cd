"""Every route says who may use it."""

from __future__ import annotations

import httpx

from noontide.apps.access.bearer import BearerAccess
from noontide.apps.access.table import OPEN, access_table
from noontide.apps.api.app import ROUTERS, create_app
from noontide.apps.api.services import Services
from noontide.apps.api.settings import ApiSettings
from noontide.records.config import ConfigView
from noontide.records.topics import Layout


async def test_no_route_is_open_by_mistake() -> None:
    settings = ApiSettings()
    services = Services(layout=Layout(), config=ConfigView)
    app = create_app(services, settings=settings, authenticate=BearerAccess(ConfigView, settings))
    table = access_table(ROUTERS)
    documented = {(method.upper(), path) for path, methods in app.openapi()["paths"].items() for method in methods}
    assert documented <= {(line.method, line.path) for line in table}
    assert {line.path for line in table if line.need is None} <= OPEN
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://api") as client:
        for line in table:
            if line.need is not None:
                answer = await client.request(line.method, line.path.replace("{", "").replace("}", ""))
                assert (line.path, answer.status_code) == (line.path, 401)
