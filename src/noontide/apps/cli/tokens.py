"""`noontide tokens`: who may use the HTTP API. A secret is shown once, when it is made; only its hash is kept."""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from noontide.apps.cli.common import USAGE, Cluster, Fault, broker_options, json_option
from noontide.apps.cli.tables import note, show_json, show_table, utc
from noontide.core.access import ALL_TENANTS, Role
from noontide.core.errors import InvalidDefinition
from noontide.records.tokens import (
    RATE_MAX,
    SECRET_BYTES,
    TOKEN_ID_FORM,
    SecretHash,
    Token,
    hash_of,
    is_token_id,
    read_tenants,
    token_text,
)  # fmt: skip

if TYPE_CHECKING:
    from noontide.apps.cli.configuring import Configuration


@click.group()
def tokens() -> None:
    """Make, list, rotate and revoke tokens of the HTTP API."""


@tokens.command()
@click.argument("name")
@click.option("--role", type=click.Choice([role.value for role in Role]), required=True, help="What it may do.")
@click.option("--tenant", "tenants", multiple=True, help="Whose jobs it sees; repeatable.")
@click.option("--all-tenants", is_flag=True, help="It sees those of all tenants.")
@click.option("--expires", help="Until an instant, or for so long: 90d, 2027-01-01T00:00:00Z.  [default: never]")
@click.option("--rate", type=click.IntRange(1, RATE_MAX), help="Requests per second, per API node.")
@click.option("--note", "remark", default="", help="What it is for.")
@json_option
@broker_options
def create(cluster: Cluster, name: str, **given: Any) -> None:
    """Make the token NAME, and show it: this once, and never again."""
    if given["all_tenants"] == bool(given["tenants"]):
        raise click.UsageError("give --tenant, or --all-tenants")
    configuration = _configuration(cluster)
    if _checked(name) in configuration.tokens():
        raise Fault(f"there is a token {name!r} already: rotate it, or revoke it first")
    text = token_text(name, secrets.token_bytes(SECRET_BYTES))
    expires = given["expires"]
    try:
        token = Token(
            id=name,
            role=Role(given["role"]),
            tenants=read_tenants([ALL_TENANTS] if given["all_tenants"] else list(given["tenants"]), "--tenant"),
            secrets=(SecretHash(sha256=hash_of(text)),),
            created_ms=configuration.now_ms,
            created_by=configuration.actor,
            expires_ms=None if expires is None else configuration.instant(expires, option="--expires"),
            requests_per_second=given["rate"],
            note=given["remark"],
        )
    except InvalidDefinition as refused:
        raise Fault(str(refused), exit_code=USAGE) from refused
    configuration.put_token(token)
    _show_secret(token, text, as_json=given["as_json"])


@tokens.command("list")
@json_option
@broker_options
def list_command(as_json: bool, cluster: Cluster) -> None:  # noqa: FBT001 - an option of click
    """List tokens; secrets are not kept, so they are not shown."""
    configuration = _configuration(cluster)
    found = list(configuration.tokens().values())
    if as_json:
        for token in found:
            show_json(_document(token))
        return
    heads = ("name", "role", "tenants", "state", "expires", "created", "by", "note")
    rows = ((*_row(token, configuration.now_ms), token.created_by, token.note) for token in found)
    show_table(heads, rows, empty="no tokens: nobody can use an API that asks for one")


@tokens.command()
@click.argument("name")
@click.option(
    "--grace", default="1h", show_default=True, help="For how long the old secret is accepted too; 0s ends it at once."
)
@json_option
@broker_options
def rotate(name: str, grace: str, as_json: bool, cluster: Cluster) -> None:  # noqa: FBT001 - an option of click
    """Give the token NAME a new secret, and show it once; the old one goes on for a while."""
    configuration = _configuration(cluster)
    token = _existing(configuration, name)
    text = token_text(name, secrets.token_bytes(SECRET_BYTES))
    until_ms = configuration.now_ms + configuration.span_ms(grace, option="--grace")
    rotated = token.rotated(text, old_until_ms=until_ms)
    if until_ms <= configuration.now_ms:
        rotated = replace(rotated, secrets=rotated.secrets[:1])
    configuration.put_token(rotated)
    _show_secret(rotated, text, as_json=as_json)


@tokens.command()
@click.argument("names", nargs=-1, required=True)
@broker_options
def revoke(names: tuple[str, ...], cluster: Cluster) -> None:
    """Take tokens back: every API node refuses them within moments."""
    configuration = _configuration(cluster)
    found = [_existing(configuration, name) for name in names]
    for token in found:
        configuration.delete(f"token/{token.id}")
        click.echo(f"{token.id} is revoked")


def _show_secret(token: Token, text: str, *, as_json: bool) -> None:
    if as_json:
        show_json({**_document(token), "token": text})
        return
    note(f"{token.id}: this is shown once, and kept nowhere. Give it to noontide as NOONTIDE_TOKEN.")
    click.echo(text)


def _document(token: Token) -> dict[str, object]:
    return {
        "name": token.id,
        "role": token.role,
        "tenants": sorted(token.tenants),
        "created_at": utc(token.created_ms),
        "created_by": token.created_by or None,
        "expires_at": utc(token.expires_ms) or None,
        "old_secret_until": next((utc(each.expires_ms) for each in token.secrets if each.expires_ms), None),
        "requests_per_second": token.requests_per_second,
        "note": token.note or None,
    }


def _row(token: Token, now_ms: int) -> tuple[str, ...]:
    expired = token.expires_ms is not None and token.expires_ms <= now_ms
    tenants = "all" if ALL_TENANTS in token.tenants else ", ".join(sorted(token.tenants))
    state = "expired" if expired else "valid"
    return token.id, token.role, tenants, state, utc(token.expires_ms) or "never", utc(token.created_ms)


def _checked(name: str) -> str:
    if not is_token_id(name):
        raise click.UsageError(f"{name!r} cannot name a token: {TOKEN_ID_FORM}")
    return name


def _existing(configuration: Configuration, name: str) -> Token:
    token = configuration.tokens().get(_checked(name))
    if token is None:
        raise Fault(f"there is no token {name!r}")
    return token


def _configuration(cluster: Cluster) -> Configuration:
    from noontide.apps.cli.configuring import Configuration

    return Configuration.of(cluster)
