"""Options of `noontide api` that say who may use it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from noontide.apps.cli.common import USAGE, Fault
from noontide.core.access import Role

if TYPE_CHECKING:
    from noontide.apps.access.options import AccessOptions

_OPTIONS = (
    click.option(
        "--no-access", is_flag=True, help="Ask for no token: everybody is an admin. Only on an address of this machine."
    ),
    click.option(
        "--oidc-issuer", envvar="NOONTIDE_OIDC_ISSUER", show_envvar=True, metavar="URL",
        help="Accept tokens of this OpenID issuer too.",
    ),
    click.option(
        "--oidc-audience", envvar="NOONTIDE_OIDC_AUDIENCE", show_envvar=True, help="What they must have in `aud`."
    ),
    click.option(
        "--oidc-algorithm", "oidc_algorithms", multiple=True, default=("RS256", "ES256"), show_default=True,
        help="A signature that is accepted; repeatable.",
    ),
    click.option("--oidc-keys-url", metavar="URL", help="The key set.  [default: what the issuer says]"),
    click.option(
        "--oidc-role-claim", envvar="NOONTIDE_OIDC_ROLE_CLAIM", default="noontide_role", show_default=True,
        help="Claim with the role; dots go into objects.",
    ),
    click.option(
        "--oidc-role", "oidc_roles", multiple=True, metavar="WORD=ROLE", help="Another word for a role; repeatable."
    ),
    click.option(
        "--oidc-tenants-claim", envvar="NOONTIDE_OIDC_TENANTS_CLAIM", default="noontide_tenants", show_default=True,
        help='Claim with the tenants, or "*".',
    ),
    click.option(
        "--oidc-name-claim", default="sub", show_default=True, help="Claim with the name that the audit shows."
    ),
    click.option(
        "--oidc-client-id", envvar="NOONTIDE_OIDC_CLIENT_ID", show_envvar=True,
        help="Public client of the dashboard: people sign in at the issuer.",
    ),
    click.option(
        "--oidc-scope", envvar="NOONTIDE_OIDC_SCOPE", default="openid", show_default=True, help="What it asks for."
    ),
    click.option(
        "--oidc-ca-file", type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Certificates trusted besides the usual, for the issuer.",
    ),
)  # fmt: skip


def access_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options, one by one; see `access_of`."""
    return reduce(lambda inner, option: option(inner), reversed(_OPTIONS), command)


def access_of(given: dict[str, Any]) -> AccessOptions:
    """What they say. Raises Fault, or InvalidDefinition for an issuer that cannot be."""
    from noontide.adapters.oidc.settings import OidcSettings
    from noontide.apps.access.options import AccessOptions

    if given["no_access"]:
        if given["oidc_issuer"]:
            raise Fault("--no-access asks for no token: leave --oidc-issuer out", exit_code=USAGE)
        return AccessOptions(required=False)
    if not given["oidc_issuer"]:
        return AccessOptions(required=True)
    issuer = OidcSettings(
        issuer=given["oidc_issuer"],
        audience=given["oidc_audience"] or "",
        algorithms=given["oidc_algorithms"],
        keys_url=given["oidc_keys_url"],
        role_claim=given["oidc_role_claim"],
        tenants_claim=given["oidc_tenants_claim"],
        name_claim=given["oidc_name_claim"],
        roles=_roles(given["oidc_roles"]),
        ca_file=given["oidc_ca_file"],
        client_id=given["oidc_client_id"],
        scope=given["oidc_scope"],
    )
    return AccessOptions(required=True, issuer=issuer)


def _roles(said: Sequence[str]) -> dict[str, Role]:
    roles = {}
    for each in said:
        word, _, role = each.rpartition("=")
        if not word or role not in list(Role):
            raise Fault(f"--oidc-role {each}: WORD=ROLE, where ROLE is one of {', '.join(Role)}", exit_code=USAGE)
        roles[word] = Role(role)
    return roles
