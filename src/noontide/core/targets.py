"""Where the runs of a job go."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

_DEFAULT_PORTS = {"http": ":80", "https": ":443"}
_WEB = ("http://", "https://")


@dataclass(frozen=True, slots=True, kw_only=True)
class BearerAuth:
    """`Authorization: Bearer <value of the secret>`. Secrets are names; their values never pass through a topic."""

    secret: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BasicAuth:
    """`Authorization: Basic ...` with the user's name in clear and the password by its secret's name."""

    username: str
    secret: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderAuth:
    """A header of the target's own choice that carries the value of the secret."""

    header: str
    secret: str


Auth = BearerAuth | BasicAuth | HeaderAuth


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpTarget:
    """A request per run. The shape is checked at definition, the resolved address at delivery.

    headers: sent as they are, after the ones the scheduler sets; names are unique whatever their case.
    sign: name of the secret that requests are signed with (HMAC-SHA256); None = not signed.
    """

    url: str
    method: str = "POST"
    headers: tuple[tuple[str, str], ...] = ()
    auth: Auth | None = None
    sign: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicTarget:
    """A record per run. key: the record's key; None = the job id."""

    name: str
    key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerTarget:
    """A Python function that workers have registered under this name."""

    name: str


Target = HttpTarget | TopicTarget | HandlerTarget


def is_url(target: str) -> bool:
    """Whether a target, as history names it, is one that is called over HTTP; schemes have no case."""
    return target[:8].lower().startswith(_WEB)


@lru_cache(maxsize=4_096)
def plain_url(url: str) -> str:
    """A URL with host and scheme in lower case, without default port, and with a path, so that it can be compared.

    RFC 3986, section 6.2.2.1 and 6.2.3. What follows the host is left as it is.
    """
    scheme, _, rest = url.partition("://")
    ends = [at for at in map(rest.find, "/?#") if at >= 0]
    host, path = (rest[: min(ends)], rest[min(ends) :]) if ends else (rest, "")
    scheme, host = scheme.lower(), host.lower()
    host = host.removesuffix(_DEFAULT_PORTS.get(scheme, ":")).removesuffix(":")
    return f"{scheme}://{host}{'' if path.startswith('/') else '/'}{path}"
