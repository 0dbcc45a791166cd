"""Clients of the HTTP API: `Client` for threads, `AsyncClient` for asyncio.

    from noontide.client import Client

    with Client("https://noontide.example", token="noontide_ci_...") as client:
        job = client.create_job({"schedule": "0 6 * * *", "target": "https://svc.example/report"})
        for run in client.runs(job=job.id):
            print(run.run_id, run.state)

Requests are sent again when that cannot do anything twice; see `noontide.client.sending`.
"""

from noontide.client.asynchronous import AsyncClient
from noontide.client.blocking import Client
from noontide.client.errors import (
    ApiError,
    Conflict,
    Forbidden,
    Invalid,
    NoAnswer,
    NotDecided,
    NotFound,
    StaleVersion,
    TooManyRequests,
    Unauthorised,
    Unavailable,
)
from noontide.client.models import Backfilled, BatchLine, Job, LeasedRun, Page, Problem, Redriven, Run, Time, Workers
from noontide.client.settings import ClientSettings

__all__ = (
    "ApiError", "AsyncClient", "Backfilled", "BatchLine", "Client", "ClientSettings", "Conflict", "Forbidden",
    "Invalid", "Job", "LeasedRun", "NoAnswer", "NotDecided", "NotFound", "Page", "Problem", "Redriven", "Run",
    "StaleVersion", "Time", "TooManyRequests", "Unauthorised", "Unavailable", "Workers",
)  # fmt: skip
