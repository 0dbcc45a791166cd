"""`/v1/targets|tenants|calendars|lanes|channels`: what operators configure, by name."""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import Any

import orjson
from fastapi import APIRouter, Request, Response

from noontide.apps.api.bodies import body_of, json_response, object_of
from noontide.apps.api.principal import Admin, Supervisor
from noontide.apps.api.problems import not_found
from noontide.apps.api.services import services_of, writer_of
from noontide.core.errors import InvalidDefinition
from noontide.records.config import NAME_MAX_CHARS, check_name, check_new_config

router = APIRouter(prefix="/v1", tags=["configuration"])


class Noun(StrEnum):
    """What can be configured here, as it is called in paths."""

    TARGETS = "targets"
    TENANTS = "tenants"
    CALENDARS = "calendars"
    LANES = "lanes"
    CHANNELS = "channels"

    @property
    def kind(self) -> str:
        """The first part of its keys."""
        return self.value.removesuffix("s")


def _add_routes(noun: Noun) -> None:
    """The routes of one noun; a path parameter for it would take the place of whatever is not there."""

    @router.get(f"/{noun}", summary=f"List {noun}", name=f"list_{noun}")
    async def list_all(request: Request, _who: Supervisor) -> Response:
        """All of them, by name."""
        prefix = f"{noun.kind}/"
        documents = services_of(request).config().documents
        found = sorted((key.removeprefix(prefix), value) for key, value in documents.items() if key.startswith(prefix))
        return json_response({"items": [{"name": name, "value": dict(value)} for name, value in found]})

    @router.get(f"/{noun}/{{name}}", summary=f"Read one of the {noun}", name=f"read_{noun}")
    async def read(request: Request, name: str, _who: Supervisor) -> Response:
        """One configuration by its name."""
        found = services_of(request).config().documents.get(f"{noun.kind}/{name}")
        if found is None:
            raise not_found(f"{noun.kind} {name[:NAME_MAX_CHARS]!r}")
        return json_response({"name": name, "value": dict(found)})

    @router.put(f"/{noun}/{{name}}", summary=f"Configure one of the {noun}", name=f"put_{noun}")
    async def put(request: Request, name: str, who: Admin) -> Response:
        """The body becomes its whole value. A topic that is registered as a target must exist."""
        document = object_of(await body_of(request))
        key, value = _key(noun, name), orjson.dumps(document)
        check_new_config(key, value)
        if noun is Noun.TARGETS:
            await _check_topic(request, document)
        await writer_of(request).configure(key, value, who)
        return json_response({"name": name, "value": document})

    @router.delete(f"/{noun}/{{name}}", status_code=204, summary=f"Remove one of the {noun}", name=f"delete_{noun}")
    async def delete(request: Request, name: str, who: Admin) -> Response:
        """Jobs that name it are kept; what they do then is said where it is needed."""
        key = _key(noun, name)
        if key not in services_of(request).config().documents:
            raise not_found(f"{noun.kind} {name!r}")
        await writer_of(request).configure(key, None, who)
        return Response(status_code=204)


def _key(noun: Noun, name: str) -> str:
    check_name(name)
    return f"{noun.kind}/{name}"


async def _check_topic(request: Request, document: dict[str, Any]) -> None:
    topic = document.get("topic")
    if topic is None:
        return
    services = services_of(request)
    if not isinstance(topic, str) or topic.startswith((services.layout.prefix, "__")):
        raise InvalidDefinition.of("/topic", "must be the name of a topic that is neither Noontide's nor Kafka's own")
    if not await asyncio.to_thread(services.topic_exists, topic):
        raise InvalidDefinition.of("/topic", f"the topic {topic!r} does not exist; create it first")


for _noun in Noun:
    _add_routes(_noun)
