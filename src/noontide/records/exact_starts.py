"""Records of `state` about jobs that insist on their minute: those that count, and requests that wait for an answer.

exact/<tenant>/<job id>      at the slot of the tenant's quota: the schedule that counts, and until when
held/<job id>/<origin>       at the slot of the job: the request, as it came
"""

from __future__ import annotations

from base64 import b64decode, b64encode

import orjson

from noontide.core.exact_quota import Insisting
from noontide.ports.record_log import Headers
from noontide.records.limit_book import TENANT
from noontide.records.state import EXACT, HELD


def exact_key(tenant: str, job_id: str) -> bytes:
    """Key of a job that counts."""
    return EXACT + f"{tenant}/{job_id}".encode()


def exact_key_parts(key: bytes) -> tuple[str, str]:
    """(tenant, job id): inverse of `exact_key`."""
    tenant, _, job_id = key[len(EXACT) :].decode().rpartition("/")
    return tenant, job_id


def encode_exact(job: Insisting) -> bytes:
    """Value of a job that counts."""
    return orjson.dumps({"schedule": job.schedule_key, "until": job.until_ms})


def decode_exact(value: bytes) -> Insisting:
    """Inverse of `encode_exact`."""
    fields = orjson.loads(value)
    return Insisting(fields["schedule"], fields["until"])


def quota_name(tenant: str) -> str:
    """The name whose partition is the home of a tenant's quota."""
    return TENANT + tenant


def held_key(job_id: str, origin: str) -> bytes:
    """Key of a request that waits."""
    return HELD + f"{job_id}/{origin}".encode()


def held_key_parts(key: bytes) -> tuple[str, str]:
    """(job id, origin): inverse of `held_key`."""
    job_id, _, origin = key[len(HELD) :].decode().partition("/")
    return job_id, origin


def encode_held(value: bytes, headers: Headers, *, appended_ms: int) -> bytes:
    """A request as it came."""
    listed = [[name, b64encode(text or b"").decode()] for name, text in headers]
    return orjson.dumps({"appended": appended_ms, "headers": listed, "value": b64encode(value).decode()})


def decode_held(value: bytes) -> tuple[bytes, list[tuple[str, bytes]], int]:
    """(value, headers, append time): inverse of `encode_held`."""
    fields = orjson.loads(value)
    headers = [(name, b64decode(text)) for name, text in fields["headers"]]
    return b64decode(fields["value"]), headers, fields["appended"]
