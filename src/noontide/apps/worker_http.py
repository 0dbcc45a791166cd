"""HTTP targets of a worker process: where they may go, with which secrets, and how they complete later."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from noontide.actors.config_directory import ConfigDirectory
from noontide.adapters.http.completion import completion_app
from noontide.adapters.http.executor import HttpExecutor
from noontide.adapters.http.secrets import SecretRule, SecretStore
from noontide.adapters.http.settings import HttpSettings
from noontide.adapters.kafka.connection import KafkaConnection
from noontide.adapters.kafka.feed import KafkaFeed
from noontide.adapters.kafka.replay import KafkaReplay
from noontide.core.errors import InvalidDefinition
from noontide.ports.record_log import TopicPartition
from noontide.ports.run_source import EventLine
from noontide.records.config import ConfigView
from noontide.records.topics import Layout
from noontide.records.worker_events import End, Frame, encode_frame

CALLBACK_KEY_VARIABLE = "NOONTIDE_CALLBACK_KEY"
KEY_BYTES_MIN = 16

log = logging.getLogger("noontide.worker")


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpOptions:
    """secrets: folder with a file per secret. callback_port: where targets complete runs later; None = they cannot."""

    settings: HttpSettings
    secrets: Path | None = None
    callback_port: int | None = None


class SecretRules(Mapping[str, SecretRule]):
    """The rules of the configuration, as they are now: `secret/<name>`."""

    def __init__(self, view: Callable[[], ConfigView]) -> None:
        self._view = view

    def __getitem__(self, name: str) -> SecretRule:
        document = self._view().documents[f"secret/{name}"]
        tenants, hosts = _names(document, "tenants"), _names(document, "hosts")
        return SecretRule(tenants=tenants, hosts=hosts, plain_http=document.get("plain_http") is True)

    def __iter__(self) -> Iterator[str]:
        return (key.partition("/")[2] for key in self._view().documents if key.startswith("secret/"))

    def __len__(self) -> int:
        return sum(1 for _ in self)


@contextlib.asynccontextmanager
async def open_http(options: HttpOptions, connection: KafkaConnection, layout: Layout) -> AsyncIterator[HttpExecutor]:
    """The executor, with the rules of the configuration followed as they change."""
    feed = KafkaFeed(connection, loop=asyncio.get_running_loop())
    at = TopicPartition(layout.name("config"), 0)
    directory = ConfigDirectory(at, feed=feed, replay=KafkaReplay(connection), on_change=lambda _view: None)
    try:
        await directory.start()
        store = SecretStore(SecretRules(lambda: directory.view), folder=options.secrets, environment=os.environ)
        yield HttpExecutor(options.settings, secrets=store, callback_key=callback_key(options))
    finally:
        await feed.close()


def callback_key(options: HttpOptions) -> bytes | None:
    """The deployment's key for completion tokens. Raises InvalidDefinition when it is needed and not good enough."""
    key = os.environ.get(CALLBACK_KEY_VARIABLE, "").encode()
    if len(key) >= KEY_BYTES_MIN:
        return key
    if options.callback_port is not None or options.settings.callback_url is not None:
        problem = f"must hold a secret of at least {KEY_BYTES_MIN} bytes, the same for all workers"
        raise InvalidDefinition.of(f"/{CALLBACK_KEY_VARIABLE}", problem)
    return None


@contextlib.asynccontextmanager
async def serve_completions(
    options: HttpOptions, line: EventLine, layout: Layout, lanes: Sequence[str]
) -> AsyncIterator[None]:
    """Serve the completion endpoint while the context is open; nothing without a port."""
    key = callback_key(options)
    if options.callback_port is None or key is None:
        yield
        return
    import uvicorn

    async def complete(end: End) -> None:
        """The lane of the run is not known here: it counts on its own, and is passed over on the others."""
        slot = layout.slot_of(layout.partition_of(end.run_id.rpartition(":")[0]))
        frame = encode_frame(Frame(worker="completion", ends=[end]))
        await asyncio.gather(*(line.post(lane, slot, frame) for lane in lanes))

    app = completion_app(complete, key=key)
    config = uvicorn.Config(app, host="0.0.0.0", port=options.callback_port, log_level="warning", lifespan="off")
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined] # the worker has its own
    serving = asyncio.create_task(server.serve())
    log.info("completions on port %d", options.callback_port)
    try:
        yield
    finally:
        server.should_exit = True
        await serving


def _names(document: Mapping[str, object], member: str) -> frozenset[str]:
    listed = document.get(member)
    if listed == "*":
        return frozenset("*")
    return frozenset(map(str, listed)) if isinstance(listed, list) else frozenset()
