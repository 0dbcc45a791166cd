"""What the commands that talk to a broker share: options, exit codes, and errors as one line for people."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import reduce, wraps
from getpass import getuser
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, ParamSpec

import click

from noontide.apps.cli.faults import DONE, NO_ANSWER, REFUSED, USAGE, Fault
from noontide.apps.cli.remote import hidden_server_option, refuse_server, server_option, way_of
from noontide.core.errors import InvalidDefinition, NoontideError

if TYPE_CHECKING:
    from noontide.adapters.kafka.connection import KafkaConnection
    from noontide.records.topics import Layout

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"
DEFAULT_PREFIX: Final = "noontide."
NAME_MAX_CHARS: Final = 200
SECRET_VARIABLE: Final = "NOONTIDE_INTERNAL_SECRET"
SECRET_BYTES_MIN: Final = 16
_SECURITY_VARIABLE: Final = "NOONTIDE_KAFKA_SECURITY_"

__all__ = (
    "BROKER_OPTIONS", "DONE", "NO_ANSWER", "REFUSED", "USAGE", "Cluster", "Fault", "broker_options", "guarded",
)  # fmt: skip

P = ParamSpec("P")
_Command = Callable[..., Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Where the brokers are and how our topics are named there."""

    bootstrap: str = DEFAULT_BOOTSTRAP
    prefix: str = DEFAULT_PREFIX
    security: Mapping[str, str] = field(default_factory=dict)

    def connection(self) -> KafkaConnection:
        """Settings for the clients. Raises InvalidDefinition for a security setting nobody knows."""
        from noontide.adapters.kafka.connection import KafkaConnection

        return KafkaConnection(self.bootstrap, security=self.security, client_id="noontide-cli")

    def layout(self) -> Layout:
        """The layout that `config/meta` says. Raises Fault when no broker answers or the topics are not there."""
        from noontide.adapters.kafka.foreign_topics import check_reachable
        from noontide.adapters.kafka.topics import read_meta
        from noontide.records.topics import Layout

        connection = self.connection()
        check_reachable(connection)
        meta = read_meta(connection, Layout(prefix=self.prefix))
        if meta is None:
            raise Fault(
                f"no Noontide topics with the prefix {self.prefix!r} at {self.bootstrap}: "
                "create them with `noontide topics apply`, or start everything with `noontide dev`"
            )
        return meta.layout(self.prefix)


BROKER_OPTIONS = (
    click.option(
        "--bootstrap", envvar="NOONTIDE_KAFKA_BOOTSTRAP", default=DEFAULT_BOOTSTRAP, show_default=True,
        show_envvar=True, help="Brokers, host:port, comma-separated.",
    ),
    click.option(
        "--prefix", envvar="NOONTIDE_PREFIX", default=DEFAULT_PREFIX, show_default=True, show_envvar=True,
        help="Before every topic name.",
    ),
    click.option(
        "--kafka-config", type=click.Path(exists=True, dir_okay=False, path_type=Path), envvar="NOONTIDE_KAFKA_CONFIG",
        show_envvar=True, metavar="FILE",
        help=f"Security settings as NAME=VALUE lines, named as librdkafka names them. Or {_SECURITY_VARIABLE}*.",
    ),
)  # fmt: skip


def broker_options(command: _Command) -> _Command:
    """The shared options, as one argument `cluster` of the command; foreseeable errors become one line."""

    way = way_of(command)

    @wraps(command)
    def run(bootstrap: str, prefix: str, kafka_config: Path | None, server: str | None = None, **options: Any) -> Any:
        if way is not None and server:
            return way(server, **options)
        if way is None:
            refuse_server(command.__name__, server, bootstrap)
        cluster = Cluster(bootstrap=bootstrap, prefix=prefix, security=security_of(kafka_config))
        return guarded(command, cluster)(cluster=cluster, **options)

    chosen = (hidden_server_option if way is None else server_option, *BROKER_OPTIONS)
    return reduce(lambda inner, option: option(inner), reversed(chosen), run)


def guarded(command: Callable[P, Any], cluster: Cluster) -> Callable[P, Any]:
    """The command with errors of the domain and of the brokers as Fault; see `fault_of`."""

    @wraps(command)
    def run(*args: P.args, **options: P.kwargs) -> Any:
        try:
            return command(*args, **options)
        except NoontideError as error:
            raise fault_of(error, cluster) from error

    return run


def fault_of(error: NoontideError, cluster: Cluster) -> Fault:
    """The line and the exit code for an error: 3 when no broker answered, else 1."""
    from noontide.adapters.kafka.foreign_topics import Unreachable
    from noontide.adapters.kafka.requests import NotSent
    from noontide.ports.record_log import Doubt

    match error:
        case Unreachable():
            hint = f"`noontide dev` starts one on this machine, --bootstrap names another (now {cluster.bootstrap})"
            return Fault(f"{error}; {hint}", exit_code=NO_ANSWER)
        case Doubt():
            return Fault(str(error), exit_code=NO_ANSWER)
        case NotSent(unreachable=True):
            return Fault(str(error), exit_code=NO_ANSWER)
        case InvalidDefinition():
            return Fault("; ".join(map(str, error.problems)))
        case _:
            return Fault(str(error))


def security_of(file: Path | None) -> dict[str, str]:
    """Security settings of variables and of a file, which wins."""
    return {**security_from(os.environ), **({} if file is None else security_file(file))}


def security_from(environment: Mapping[str, str]) -> dict[str, str]:
    """Security settings in variables: NOONTIDE_KAFKA_SECURITY_SASL_USERNAME is sasl.username, and so on."""
    found = {}
    for variable, value in environment.items():
        if variable.startswith(_SECURITY_VARIABLE):
            name = variable.removeprefix(_SECURITY_VARIABLE).lower().replace("_", ".")
            found["security.protocol" if name == "protocol" else name] = value
    return found


def security_variables(security: Mapping[str, str]) -> dict[str, str]:
    """The variables from which `security_from` makes these settings."""
    names = {name: "protocol" if name == "security.protocol" else name for name in security}
    return {_SECURITY_VARIABLE + names[name].upper().replace(".", "_"): value for name, value in security.items()}


def security_file(path: Path) -> dict[str, str]:
    """Security settings in a file of NAME=VALUE lines; blank lines and lines that begin with # are skipped."""
    found = {}
    for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            name, equals, value = line.partition("=")
            if not equals:
                raise Fault(f"{path}:{number}: not NAME=VALUE", exit_code=USAGE)
            found[name.strip()] = value.strip()
    return found


def actor_name() -> str:
    """Who is at the command line, for the audit: what the system says, or just `cli`."""
    try:
        return f"cli:{getuser()}"[:NAME_MAX_CHARS]
    except (KeyError, OSError):  # no user of this number, and no variable that names one
        return "cli"


def shared_secret(environment: Mapping[str, str], *, needed: bool) -> str | None:
    """What API nodes and schedulers know of each other. Raises Fault when it is short, or needed and not there."""
    secret = environment.get(SECRET_VARIABLE, "")
    if not secret and not needed:
        return None
    if len(secret.encode()) < SECRET_BYTES_MIN or not secret.isascii() or not secret.isprintable():
        raise Fault(
            f"{SECRET_VARIABLE} must hold a secret of at least {SECRET_BYTES_MIN} printable characters, the same for "
            "all schedulers and API nodes",
            exit_code=USAGE,
        )
    return secret


def json_option(command: _Command) -> _Command:
    """`--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON Lines for programs.")(command)
