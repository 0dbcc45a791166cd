"""Definitions on their way in: checked here as the owner will check them, so that mistakes are answered at once."""

from __future__ import annotations

from dataclasses import dataclass, replace

import orjson
from fastapi import Request

from noontide.adapters.system_clock import new_id
from noontide.apps.api.services import services_of, settings_of
from noontide.core.access import Principal
from noontide.core.definition import Definition, DefinitionContext, parse_definition
from noontide.core.errors import InvalidDefinition, Problem
from noontide.core.ids import id_from_idempotency_key
from noontide.core.job import Job
from noontide.core.schedule import IntervalSchedule

KEY_MAX_CHARS = 200
DEFAULT_TENANT = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """An acceptable definition. text: as it was sent; context: what it was read against."""

    text: bytes
    definition: Definition
    context: DefinitionContext
    idempotency_key: str | None = None

    @property
    def job(self) -> Job:
        """The job it makes."""
        return self.definition.job

    def document_at(self, appended_ms: int) -> bytes:
        """The normalised document as the owner makes it, knowing when the request was appended."""
        if not isinstance(self.job.schedule, IntervalSchedule):
            return self.definition.document
        context = replace(self.context, created_ms=appended_ms)
        return parse_definition(self.text, context=context).document


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafter:
    """Reads definitions of new jobs for somebody."""

    who: Principal
    context: DefinitionContext

    @classmethod
    def of(cls, request: Request, who: Principal) -> Drafter:
        """For whoever sent the request."""
        return cls(who=who, context=_context(request, who))

    def new(self, text: bytes, header_key: str | None) -> Draft:
        """A definition for a new job. Raises InvalidDefinition with everything that is wrong."""
        if header_key is None:
            job_id = new_id()
        else:
            _check_key(header_key)
            job_id = id_from_idempotency_key(_tenant_in(text, self.who), header_key)
        context = replace(self.context, new_id=job_id)
        definition = parse_definition(text, context=context)
        _check_tenant(definition.job, self.who)
        body_key = definition.job.idempotency_key
        if header_key is not None and body_key not in (None, header_key):
            raise InvalidDefinition.of("/idempotency_key", "differs from the header Idempotency-Key")
        return Draft(text=text, definition=definition, context=context, idempotency_key=header_key or body_key)


def read_whole(request: Request, who: Principal, text: bytes, job_id: str) -> Draft:
    """A definition that is to stand under this id. Raises InvalidDefinition."""
    context = replace(_context(request, who), key=job_id)
    definition = parse_definition(text, context=context)
    _check_tenant(definition.job, who)
    return Draft(text=text, definition=definition, context=context)


def read_patched(request: Request, text: bytes, patch: dict[str, object], previous: Job | None, job_id: str) -> Draft:
    """A definition that a patch made. What the patch itself does not know is refused; what was there before stays."""
    context = _context(request, None)
    context = replace(
        context,
        key=job_id,
        tenant=None if previous is None else previous.tenant,
        previous=previous,
        unknown_fields="warn",
    )
    definition = parse_definition(text, context=context)
    mine = [each for each in definition.warnings if each.pointer.split("/")[1] in patch]
    if mine:
        raise InvalidDefinition(tuple(mine))
    return Draft(text=text, definition=definition, context=context)


def _context(request: Request, who: Principal | None) -> DefinitionContext:
    services = services_of(request)
    return DefinitionContext(
        key=None,
        tenant=None if who is None else who.tenant,
        created_ms=services.now_ms(),
        limits=settings_of(request).definition,
        unknown_fields="refuse",
        topic_prefix=services.layout.prefix,
    )


def _check_key(key: str) -> None:
    if not 1 <= len(key) <= KEY_MAX_CHARS or not key.isprintable() or not key.isascii():
        message = f"must be 1 to {KEY_MAX_CHARS} printable ASCII characters"
        raise InvalidDefinition.of("/headers/idempotency-key", message)


def check_key(key: str | None) -> str | None:
    """An idempotency key of a header. Raises InvalidDefinition."""
    if key is not None:
        _check_key(key)
    return key


def _check_tenant(job: Job, who: Principal) -> None:
    if not who.sees(job.tenant):
        raise InvalidDefinition((Problem("/tenant", "is not one that you may speak for"),))


def _tenant_in(text: bytes, who: Principal) -> str:
    """The tenant that ids from keys are made for; what is wrong with it is found out later."""
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return DEFAULT_TENANT
    tenant = found.get("tenant") if isinstance(found, dict) else None
    return tenant if isinstance(tenant, str) else who.tenant or DEFAULT_TENANT
