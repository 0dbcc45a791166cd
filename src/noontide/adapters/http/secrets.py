"""Secrets: values by name, for the tenants and hosts they were registered for.

Names travel in definitions, values never leave the worker except to a host of the rule. A value comes from a file of
the folder, named like the secret, or from the environment variable `NOONTIDE_SECRET_<NAME>`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from noontide.adapters.http.refusals import Refused, Unready

VALUE_MAX_BYTES: Final = 4_096
ANYBODY: Final = "*"

_matches_name = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}").fullmatch
_matches_value = re.compile(rb"[!-~]([ -~]*[!-~])?").fullmatch
_not_of_variables = re.compile(r"[^A-Z0-9]")


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretRule:
    """Who may use a secret, and where: `secret/<name>` of the configuration.

    tenants: ids, or "*" for all. hosts: names as in URLs; "*.example.com" is every name below example.com.
    plain_http: it may also travel without TLS.
    """

    tenants: frozenset[str]
    hosts: frozenset[str]
    plain_http: bool = False

    def admits_tenant(self, tenant: str) -> bool:
        return ANYBODY in self.tenants or tenant in self.tenants

    def admits_host(self, host: str) -> bool:
        host = host.lower()
        return any(
            host == each.lower() or (each.startswith("*.") and host.endswith(each[1:].lower())) for each in self.hosts
        )


@dataclass(frozen=True, slots=True, repr=False)
class SecretValue:
    """The value of a secret; nothing shows it unless it is asked for."""

    reveal: bytes

    def __repr__(self) -> str:
        return "SecretValue(***)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Where a secret would go, and for whom."""

    tenant: str
    scheme: str
    host: str


class SecretStore:
    """Looks secrets up. A file that changes is read again, so values can be replaced without a restart.

    rules: by name; may be a live mapping. folder: one file per secret, goes before the environment.
    """

    def __init__(
        self,
        rules: Mapping[str, SecretRule],
        *,
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._rules = rules
        self._folder = folder
        self._environment = environment or {}
        self._read: dict[str, tuple[tuple[int, int, int], bytes]] = {}

    def value(self, name: str, destination: Destination) -> SecretValue:
        """The value for sending it to a destination.

        Raises Refused when nobody has permitted this, Unready when this worker has no (usable) value.
        """
        rule = self._rule(name, destination)
        if destination.scheme != "https" and not rule.plain_http:
            raise Refused(f"secret {name} is not sent without TLS (its rule may set plain_http)")
        return self._value(name)

    def signing_key(self, name: str, destination: Destination) -> SecretValue:
        """The value for signing: as `value`, but it does not travel itself, so that TLS is not asked for."""
        self._rule(name, destination)
        return self._value(name)

    def _rule(self, name: str, destination: Destination) -> SecretRule:
        rule = self._rules.get(name) if _matches_name(name) else None
        if rule is None or not rule.admits_tenant(destination.tenant):
            raise Refused(f"secret {name[:100]} is not registered for tenant {destination.tenant}")
        if not rule.admits_host(destination.host):
            raise Refused(f"secret {name} is not registered for host {destination.host}")
        return rule

    def _value(self, name: str) -> SecretValue:
        value = self._from_folder(name)
        if value is None:
            text = self._environment.get(f"NOONTIDE_SECRET_{_not_of_variables.sub('_', name.upper())}")
            value = None if text is None else text.encode("utf-8", "surrogateescape").strip()
        if value is None:
            raise Unready(f"secret {name} has no value on this worker")
        if len(value) > VALUE_MAX_BYTES or not _matches_value(value):
            raise Unready(f"secret {name} must be 1 to {VALUE_MAX_BYTES} visible ASCII characters on this worker")
        return SecretValue(value)

    def _from_folder(self, name: str) -> bytes | None:
        if self._folder is None:
            return None
        path = self._folder / name
        try:
            status = path.stat()
            stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
            known = self._read.get(name)
            if known is None or known[0] != stamp:
                with path.open("rb") as file:
                    known = (stamp, file.read(VALUE_MAX_BYTES + 2).strip())  # editors end a file with a line break
                self._read[name] = known
        except FileNotFoundError:
            return None
        except OSError as failed:
            raise Unready(f"secret {name} cannot be read on this worker ({type(failed).__name__})") from None
        return known[1]
