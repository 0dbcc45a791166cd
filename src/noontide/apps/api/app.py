"""The application: one factory, which `noontide api`, `noontide dev`, the dashboard and the tests call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial

from fastapi import APIRouter, FastAPI

from noontide.apps.api import (
    agents,
    batch,
    calendar_diff,
    cluster,
    configuration,
    dead_letters,
    forecast,
    graph,
    health,
    job_actions,
    job_lists,
    jobs,
    live,
    login,
    occurrences,
    outcomes,
    preview,
    requests,
    run_content,
    runs,
    scaling,
    shares,
    work,
)
from noontide.apps.api.gate import Gate
from noontide.apps.api.looks import Looks
from noontide.apps.api.openapi import openapi_of
from noontide.apps.api.principal import Authenticate, everybody
from noontide.apps.api.problems import answer_with_problems
from noontide.apps.api.services import Services
from noontide.apps.api.settings import ApiSettings
from noontide.apps.api.traffic import Traffic

ROUTERS: Sequence[APIRouter] = (
    jobs.router,
    job_lists.router,
    job_actions.router,
    occurrences.router,
    graph.router,
    batch.router,
    preview.router,
    requests.router,
    runs.router,
    run_content.router,
    outcomes.router,
    live.router,
    login.router,
    dead_letters.router,
    configuration.router,
    calendar_diff.router,
    cluster.router,
    shares.router,
    forecast.router,
    scaling.router,
    agents.router,
    work.router,
    health.router,
)
DESCRIPTION = "Jobs at their times, on Kafka. Errors are problem documents (RFC 9457)."

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


def create_app(
    services: Services,
    *,
    settings: ApiSettings | None = None,
    authenticate: Authenticate = everybody,
    routers: Sequence[APIRouter] = (),
    lifespan: Lifespan | None = None,
) -> FastAPI:
    """The API over some services.

    authenticate: finds out who asks; everybody is an operator when it is left out. routers: more routes, such as the
    dashboard's. lifespan: what lives as long as the application.
    """
    app = FastAPI(
        title="Noontide",
        version="v1",
        description=DESCRIPTION,
        openapi_url="/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        redirect_slashes=False,
    )
    app.state.services = services
    app.state.settings = settings or ApiSettings()
    app.state.authenticate = authenticate
    answer_with_problems(app)
    for router in (*ROUTERS, *routers):
        app.include_router(router)
    app.openapi = partial(openapi_of, app)  # type: ignore[method-assign] # as FastAPI's documentation has it
    app.state.traffic = Traffic()
    app.state.looks = Looks(app, app.state.settings)
    larger = {"/v1/jobs:batch": app.state.settings.batch_max_bytes}
    app.add_middleware(Gate, settings=app.state.settings, larger=larger, traffic=app.state.traffic)
    return app
