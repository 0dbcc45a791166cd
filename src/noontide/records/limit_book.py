"""The limits that operators have set, and which of them a run comes under.

A limiter is named `key/<tenant>/<concurrency key>`, `tenant/<id>` or `target/<name>`. In the order of these kinds a run
takes its permits, so that two runs never wait for each other: keys first, so that runs which wait for one keep nothing
from the rest of their tenant; targets last, so that a tenant at its cap keeps none of theirs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from noontide.core.errors import InvalidDefinition
from noontide.core.targets import is_url, plain_url

TENANT, TARGET, KEY = "tenant/", "target/", "key/"
HANDLER = "handler:"
EXACT_STARTS = "exact_starts_per_minute_max"
WEIGHT_MIN, WEIGHT_MAX = 0.000_001, 1_000_000.0
STARTS_MIN, STARTS_MAX = 0.000_01, 1_000_000.0
"""Starts per second; the least is about one in a day."""
CONCURRENCY_MAX = 1_000_000_000


class Ceiling(NamedTuple):
    """What a limiter lets through. concurrency: runs at a time; per_second: starts; None = no bound."""

    concurrency: int | None = None
    per_second: float | None = None


NO_CEILING = Ceiling()
ONE_AT_A_TIME = Ceiling(concurrency=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitBook:
    """All limits. ceilings: by limiter; handlers, urls: limited targets (several at times), by handler and URL prefix.

    urls: longest prefix first. weights: of tenants that have one. exact_starts: jobs that may insist on one minute, of
    tenants with such a quota.
    """

    ceilings: Mapping[str, Ceiling] = field(default_factory=lambda: MappingProxyType({}))
    handlers: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    urls: tuple[tuple[str, tuple[str, ...]], ...] = ()
    weights: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    exact_starts: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    def limiters_of(self, tenant: str, target: str, key: str | None) -> tuple[str, ...]:
        """The limiters a run comes under, in the order of their permits. target: as history names it."""
        found = [] if key is None else [f"{KEY}{tenant}/{key}"]
        if (limiter := TENANT + tenant) in self.ceilings:
            found.append(limiter)
        return (*found, *self._targets(target))

    def ceiling(self, limiter: str) -> Ceiling:
        """What a limiter lets through now. A concurrency key lets one run through, unless its tenant says otherwise."""
        known = self.ceilings.get(limiter)
        if known is None:
            return ONE_AT_A_TIME if limiter.startswith(KEY) else NO_CEILING
        return known

    def capped(self) -> frozenset[str]:
        """Limiters of tenants and targets that bound how many run at a time."""
        return frozenset(
            name for name, each in self.ceilings.items() if each.concurrency is not None and not name.startswith(KEY)
        )

    def weight_of(self, tenant: str) -> float:
        """The tenant's part when things are shared."""
        return self.weights.get(tenant, 1.0)

    def _targets(self, target: str) -> tuple[str, ...]:
        if target.startswith(HANDLER):
            return self.handlers.get(target.removeprefix(HANDLER), ())
        if not self.urls or not is_url(target):
            return ()
        url = plain_url(target)
        return next((names for prefix, names in self.urls if url.startswith(prefix)), ())


NO_LIMITS = LimitBook()


def check_tenant(document: Mapping[str, object]) -> None:
    """Refuse numbers that mean nothing. Raises InvalidDefinition naming the field."""
    _number(document, "weight", WEIGHT_MIN, WEIGHT_MAX)
    _count(document, "concurrency_max")
    _count(document, EXACT_STARTS)
    keys = document.get("concurrency_keys", {})
    if not isinstance(keys, Mapping):
        raise InvalidDefinition.of("/concurrency_keys", "must be an object of keys and how many runs each lets through")
    for key in keys:
        _count(keys, key, within="/concurrency_keys")


def check_target_limits(document: Mapping[str, object]) -> None:
    """Limits belong to targets that workers call. Raises InvalidDefinition naming the field."""
    _count(document, "concurrency_max")
    _number(document, "starts_per_second_max", STARTS_MIN, STARTS_MAX)
    named = [kind for kind in ("topic", "handler", "url") if document.get(kind) is not None]
    if len(named) != 1:
        raise InvalidDefinition.of("", 'must have exactly one of "topic", "handler" and "url"')
    value = document[named[0]]
    if not isinstance(value, str) or not value:
        raise InvalidDefinition.of(f"/{named[0]}", "must be a text that is not empty")
    if named[0] == "url" and not is_url(value):
        raise InvalidDefinition.of("/url", 'must begin with "https://" or "http://"')
    limits = [name for name in ("concurrency_max", "starts_per_second_max") if document.get(name) is not None]
    if named[0] == "topic" and limits:
        raise InvalidDefinition.of("", "a registered topic takes records in the claim's own transaction: no limits")


def book_of(documents: Mapping[str, Mapping[str, object]]) -> LimitBook:
    """The book that checked configuration documents make, by key."""
    ceilings: dict[str, Ceiling] = {}
    handlers: defaultdict[str, list[str]] = defaultdict(list)
    urls: defaultdict[str, list[str]] = defaultdict(list)
    weights: dict[str, float] = {}
    for key, document in documents.items():
        if key.startswith(TENANT):
            _read_tenant(key, document, ceilings, weights)
        elif key.startswith(TARGET) and document.get("topic") is None:
            ceiling = Ceiling(_int(document, "concurrency_max"), _float(document, "starts_per_second_max"))
            if ceiling == NO_CEILING:
                continue
            ceilings[key] = ceiling
            if document.get("handler") is not None:
                handlers[str(document["handler"])].append(key)
            else:
                urls[plain_url(str(document["url"]))].append(key)
    longest_first = sorted(_sorted_names(urls).items(), key=lambda item: (-len(item[0]), item[0]))
    exact = {
        key.removeprefix(TENANT): most
        for key, document in documents.items()
        if key.startswith(TENANT) and (most := _int(document, EXACT_STARTS)) is not None
    }
    return LimitBook(
        ceilings=ceilings, handlers=_sorted_names(handlers), urls=tuple(longest_first), weights=weights,
        exact_starts=exact,
    )  # fmt: skip


def _sorted_names(named: Mapping[str, list[str]]) -> dict[str, tuple[str, ...]]:
    """Two limits of one thing hold both; their order is the same everywhere, as permits are taken in it."""
    return {of: tuple(sorted(keys)) for of, keys in named.items()}


def _read_tenant(
    key: str, document: Mapping[str, object], ceilings: dict[str, Ceiling], weights: dict[str, float]
) -> None:
    tenant = key.removeprefix(TENANT)
    if (most := _int(document, "concurrency_max")) is not None:
        ceilings[key] = Ceiling(concurrency=most)
    if (weight := _float(document, "weight")) is not None:
        weights[tenant] = weight
    keys = document.get("concurrency_keys")
    if isinstance(keys, Mapping):
        ceilings |= {f"{KEY}{tenant}/{name}": Ceiling(concurrency=_int(keys, name)) for name in keys}


def _int(document: Mapping[str, object], name: str) -> int | None:
    value = document.get(name)
    return value if isinstance(value, int) else None


def _float(document: Mapping[str, object], name: str) -> float | None:
    value = document.get(name)
    return float(value) if isinstance(value, int | float) else None


def _count(document: Mapping[str, object], name: str, within: str = "") -> None:
    value = document.get(name)
    if value is not None and (type(value) is not int or not 0 <= value <= CONCURRENCY_MAX):
        raise InvalidDefinition.of(f"{within}/{name}", f"must be a whole number from 0 to {CONCURRENCY_MAX}")


def _number(document: Mapping[str, object], name: str, least: float, most: float) -> None:
    value = document.get(name)
    if value is not None and (type(value) not in (int, float) or not least <= float(str(value)) <= most):
        raise InvalidDefinition.of(f"/{name}", f"must be a number from {least:.6f} to {most:.0f}")
