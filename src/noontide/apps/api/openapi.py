"""The OpenAPI 3.1 document: what the routes say of themselves, and the bodies, which they read by hand.

Bodies are described by the schemas of the topics they become, so that HTTP and Kafka cannot drift apart.
`python -m noontide.apps.api.openapi` prints the document that is checked in as docs/reference/openapi.json.
"""

from __future__ import annotations

import copy
from typing import Any, Final, NamedTuple, cast

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from noontide.records.topics import load_catalogue

Json = dict[str, Any]
PROBLEM: Final = "application/problem+json"
JSON: Final = "application/json"


class Body(NamedTuple):
    """A body that an operation takes. schema: the name of a component; types: media types."""

    schema: str
    example: Any
    required: bool = True
    types: tuple[str, ...] = (JSON,)


DEFINITION_EXAMPLE: Final[Json] = {
    "schedule": "0 6 * * *",
    "target": "https://svc.example/report",
    "payload": {"month": "2026-02"},
    "retry": {"max_attempts": 5, "backoff": "exponential"},
    "timeout_sec": 300,
    "idempotency_key": "monthly report, February",
}
_CALENDAR: Final[Json] = {"dates": ["2026-12-25"]}
BODIES: Final[dict[tuple[str, str], Body]] = {
    ("post", "/v1/jobs"): Body("Definition", DEFINITION_EXAMPLE),
    ("put", "/v1/jobs/{job_id}"): Body("Definition", {"schedule": "0 7 * * *", "target": "handler:send_report"}),
    ("patch", "/v1/jobs/{job_id}"): Body(
        "Patch", {"paused": True, "note": "until Monday"}, types=(JSON, "application/merge-patch+json")
    ),
    ("post", "/v1/jobs:batch"): Body(
        "Lines",
        '{"id": "a", "run_at": "2096-01-01T00:00:00Z", "target": "handler:x"}\n',
        types=("application/x-ndjson",),
    ),
    ("post", "/v1/preview"): Body("Patch", {"schedule": "30 2 * * *", "timezone": "Europe/Berlin"}),
    ("post", "/v1/jobs/{job_id}/trigger"): Body("Trigger", {"payload": {"month": "2026-01"}}, required=False),
    ("post", "/v1/jobs/{job_id}/backfill"): Body(
        "Backfill", {"from": "2026-02-01T00:00:00Z", "to": "2026-02-08T00:00:00Z", "max": 10}
    ),
    ("post", "/v1/jobs/{job_id}/pause"): Body("Note", {"note": "holiday"}, required=False),
    ("post", "/v1/jobs/{job_id}/resume"): Body("Note", {"note": None}, required=False),
    ("post", "/v1/runs/{run_id}/cancel"): Body("Reason", {"reason": "wrong data"}, required=False),
    ("post", "/v1/runs/{run_id}/retry"): Body("Reason", {}, required=False),
    ("post", "/v1/dead-letters/redrive"): Body("Redrive", {"job_id": "nightly-report", "limit": 10}),
    ("post", "/v1/login"): Body(
        "Login", {"code": "SplxlOBe", "verifier": "dBjftJeZ4CVP", "redirect": "https://api.example/"}
    ),
    ("post", "/v1/workers/lease"): Body(
        "Lease", {"handlers": ["resize"], "lane": "default", "max": 10, "wait_ms": 20000}
    ),
    ("post", "/v1/workers/heartbeat"): Body(
        "Heartbeat", {"worker": "w-1f0c22ab", "runs": [{"run_id": "thumbnails:m4", "token": 1, "progress": 0.5}]}
    ),
    ("post", "/v1/workers/complete"): Body(
        "Completion",
        {
            "worker": "w-1f0c22ab",
            "run_id": "thumbnails:m4",
            "token": 1,
            "outcome": "succeeded",
            "result": {"files": 12},
        },
    ),
    ("put", "/v1/calendars/{name}"): Body("Configuration", _CALENDAR),
    ("post", "/v1/calendars/{name}/diff"): Body("Configuration", _CALENDAR),
    ("put", "/v1/targets/{name}"): Body("Configuration", {"topic": "orders.reminders", "tenants": "*"}),
    ("put", "/v1/tenants/{name}"): Body("Configuration", {}),
    ("put", "/v1/lanes/{name}"): Body("Configuration", {}),
    ("put", "/v1/channels/{name}"): Body("Configuration", {}),
}


def openapi_of(app: FastAPI) -> Json:
    """The document; made once per application."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title,
            version=app.version,
            description=app.description,
            routes=app.routes,
            openapi_version="3.1.0",
        )
        app.openapi_schema = _completed(document)
    return app.openapi_schema


def _completed(document: Json) -> Json:
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):  # ours are problem documents
        schemas.pop(name, None)
    schemas.update(_schemas())
    problem = {"description": "A problem", "content": {PROBLEM: {"schema": _ref("Problem")}}}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            operation["responses"].pop("422", None)
            operation["responses"]["default"] = problem
            body = BODIES.get((method, path))
            if body is not None:
                content = {"schema": _ref(body.schema), "example": body.example}
                operation["requestBody"] = {"required": body.required, "content": dict.fromkeys(body.types, content)}
    return document


def _schemas() -> Json:
    requests = cast("Json", load_catalogue()["requests"].value)["$defs"]
    definition = _plain(requests["define"])
    patch = copy.deepcopy(definition)
    patch.pop("required", None)
    patch["title"] = "A merge patch (RFC 7396), or a definition without a target"
    return {
        "Definition": definition,
        "Patch": patch,
        "Lines": {"type": "string", "description": "JSON Lines: a Definition in each line."},
        "Trigger": _plain(requests["trigger"]),
        "Backfill": _plain(requests["backfill"]),
        "Redrive": _object(
            run_id={"type": "string"},
            run_ids={"type": "array", "items": {"type": "string"}, "maxItems": 1000},
            job_id={"type": "string"},
            reason={"type": "string"},
            limit={"type": "integer", "minimum": 1, "maximum": 1000},
            dry_run={"type": "boolean"},
        ),
        **_work(),
        "Login": _object(**{name: {"type": "string"} for name in ("code", "verifier", "redirect", "refresh_token")}),
        "Note": _object(note={"type": ["string", "null"]}),
        "Reason": _object(reason={"type": "string"}),
        "Configuration": {"type": "object", "description": "As `noontide config put` takes it."},
        "Problem": _problem(),
    }


def _work() -> Json:
    """What workers say."""
    whole = {"type": "integer", "minimum": 0}
    worker = {"type": "string", "description": "As the lease named it.", "minLength": 1, "maxLength": 200}
    held: Json = {"run_id": {"type": "string"}, "token": whole}
    lease = _object(
        handlers={"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 100},
        lane={"type": "string", "default": "default"},
        max={"type": "integer", "minimum": 1, "default": 1},
        wait_ms={"type": ["integer", "null"], "minimum": 0},
    )
    progress = {"type": ["number", "null"], "minimum": 0, "maximum": 1}
    run = _object(**held, progress=progress, note={"type": ["string", "null"]})
    beat = _object(worker=worker, runs={"type": "array", "items": {**run, "required": ["run_id", "token"]}})
    completion = _object(
        worker=worker,
        **held,
        outcome={"enum": ["succeeded", "failed", "cancelled", "handed_back"]},
        result={"description": "Any JSON, at most 64 KiB."},
        error={"type": ["string", "null"]},
        permanent={"type": "boolean"},
        retry_after_sec={"type": ["number", "null"], "minimum": 0, "maximum": 2_592_000},
        duration_ms=whole,
    )
    return {
        "Lease": {**lease, "required": ["handlers"]},
        "Heartbeat": {**beat, "required": ["worker", "runs"]},
        "Completion": {**completion, "required": ["worker", "run_id", "token", "outcome"]},
    }


def _problem() -> Json:
    error = _object(pointer={"type": "string"}, message={"type": "string"})
    found = _object(
        type={"type": "string"},
        title={"type": "string"},
        status={"type": "integer"},
        detail={"type": "string"},
        errors={"type": "array", "items": error},
    )
    return {**found, "required": ["type", "title", "status", "detail"], "title": "Problem (RFC 9457)"}


def _object(**properties: Json) -> Json:
    return {"type": "object", "properties": properties}


def _plain(schema: Any) -> Json:
    """A schema of a topic without what only the topics' files know."""
    if isinstance(schema, dict):
        return {name: _plain(value) for name, value in schema.items() if name != "since"}
    if isinstance(schema, list):
        return cast("Json", [_plain(each) for each in schema])
    return cast("Json", schema)


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def printed() -> str:
    """The document as text, as it is checked in."""
    import json

    from noontide.apps.api.app import create_app
    from noontide.apps.api.services import Services
    from noontide.records.config import ConfigView
    from noontide.records.topics import Layout

    app = create_app(Services(layout=Layout(), config=ConfigView))
    return json.dumps(app.openapi(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    import sys

    sys.stdout.write(printed())
