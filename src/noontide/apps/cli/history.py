"""`noontide history`: the executions in PostgreSQL: its table, its sink, what is there, and what goes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from noontide.apps.cli.common import DEFAULT_PREFIX, Cluster, Fault, broker_options, json_option, security_of
from noontide.apps.cli.spans import parse_span_ms
from noontide.apps.cli.tables import show_json

if TYPE_CHECKING:
    from noontide.adapters.kafka.connect_rest import ConnectorState
    from noontide.apps.history_keeper import HistoryKeeper
    from noontide.apps.sink_step_over import StepOver

DAY_MS: Final = 86_400_000
T = TypeVar("T")

_url_option = click.option(
    "--url", envvar="NOONTIDE_HISTORY_URL", show_envvar=True, required=True, metavar="URL",
    help="The database: postgresql://user:password@host:5432/name.",
)  # fmt: skip
_connect_option = click.option(
    "--connect", "connect_url", envvar="NOONTIDE_CONNECT_URL", show_envvar=True, metavar="URL",
    help="Kafka Connect's REST address, such as http://127.0.0.1:8083.",
)  # fmt: skip


@click.group()
def history() -> None:
    """Executions in PostgreSQL, where they stay longer than on their topic.

    Kafka Connect copies them; these commands make the table, look after it, and drop what is old.
    """


@history.command()
@_url_option
@_connect_option
@click.option("--prefix", envvar="NOONTIDE_PREFIX", default=DEFAULT_PREFIX, show_default=True, show_envvar=True,
              help="Before every topic name.")  # fmt: skip
def init(url: str, connect_url: str | None, prefix: str) -> None:
    """Create the table and partitions from yesterday to a week from now; with --connect, the sink as well.

    Run it again after an upgrade: columns that a new version has are added, the sink's configuration is renewed.
    """
    keeper = _keeper(url=url, connect_url=connect_url)
    _guarded(keeper.keep_table)
    click.echo("table noontide.executions is ready")
    if connect_url is not None:
        _guarded(lambda: _put_connector(connect_url, prefix))
        click.echo(f"sink {keeper.connector} is configured at {connect_url}")


@history.command()
@click.option("--prefix", envvar="NOONTIDE_PREFIX", default=DEFAULT_PREFIX, show_default=True, show_envvar=True,
              help="Before every topic name.")  # fmt: skip
def connector(prefix: str) -> None:
    """Print the sink's configuration as JSON: the body of PUT /connectors/noontide-executions-postgres/config."""
    from noontide.records.history import connector_config

    show_json(connector_config(prefix))


@history.command()
@_url_option
@_connect_option
@json_option
@broker_options
def status(cluster: Cluster, url: str, connect_url: str | None, as_json: bool) -> None:  # noqa: FBT001
    """Show rows, days, the sink and how far it is behind. Exit code 1 when the table or the sink needs somebody."""
    from noontide.adapters.kafka.connect_rest import ConnectRest
    from noontide.adapters.kafka.group_lag import group_lag
    from noontide.adapters.postgres.table import history_database, table_status
    from noontide.records.history import CONNECTOR_NAME

    with history_database(url) as database:
        table = table_status(database)
    if table is None:
        raise Fault("there is no table noontide.executions: run `noontide history init`")
    lag = group_lag(cluster.connection(), group=f"connect-{CONNECTOR_NAME}", topic=f"{cluster.prefix}executions")
    sink = None if connect_url is None else _guarded(lambda: ConnectRest(connect_url).state(CONNECTOR_NAME))
    found = {
        "rows_estimated": table.rows,
        "rows_without_partition": table.rest_rows,
        "bytes": table.bytes,
        "partitions": table.partitions,
        "first_day": table.first and table.first.isoformat(),
        "last_day": table.last and table.last.isoformat(),
        "newest_end": table.newest_end,
        "missing_columns": list(table.missing_columns),
        "lag_records": lag,
        "sink": None if connect_url is None else _sink_word(sink),
        "sink_failure": sink.trace if sink is not None and sink.failed else None,
    }
    if as_json:
        show_json(found)
    else:
        for name, value in found.items():
            click.echo(f"{name.replace('_', ' '):24} {_shown(value)}")
    if table.missing_columns or (connect_url is not None and (sink is None or sink.failed)):
        raise SystemExit(1)


@history.command()
@_url_option
@click.option("--keep", default="90d", show_default=True, metavar="DURATION", help="Drop what was due longer ago.")
@json_option
def prune(url: str, keep: str, as_json: bool) -> None:  # noqa: FBT001
    """Drop old days. A day is dropped as a whole, which takes no time however many rows it has."""
    days, rows = _guarded(lambda: _keeper(url=url).prune(_days(keep)))
    if as_json:
        show_json({"days_dropped": [day.isoformat() for day in days], "rows_without_partition_deleted": rows})
    else:
        click.echo(f"{len(days)} days dropped, {rows} rows of days without a partition deleted")


@history.command()
@_url_option
@_connect_option
@click.option("--keep", metavar="DURATION", help="Drop what was due longer ago.  [default: keep everything]")
@click.option(
    "--bootstrap",
    envvar="NOONTIDE_KAFKA_BOOTSTRAP",
    show_envvar=True,
    help="Brokers: with them a sink gets past a record that PostgreSQL refuses.",
)
@click.option(
    "--prefix",
    envvar="NOONTIDE_PREFIX",
    default=DEFAULT_PREFIX,
    show_default=True,
    show_envvar=True,
    help="Before every topic name.",
)
def watch(url: str, connect_url: str | None, keep: str | None, bootstrap: str | None, prefix: str) -> None:  # fmt: skip
    """Keep the history in order until stopped: coming days, old days, and a sink that fails is started again.

    With --bootstrap, a record that the database would refuse for ever goes to `sink-errors`, and the sink on behind it.
    """
    from noontide.apps.cli.log_options import log_to_stderr

    log_to_stderr("info")
    keep_days = None if keep is None else _guarded(lambda: _days(keep))
    step_over = None if bootstrap is None else _step_over(bootstrap, prefix, url)
    keeper = _keeper(url=url, connect_url=connect_url, keep_days=keep_days, step_over=step_over)
    try:
        asyncio.run(keeper.run())
    except KeyboardInterrupt:
        return


def _step_over(bootstrap: str, prefix: str, url: str) -> StepOver:
    from noontide.apps.sink_step_over import StepOver

    connection = Cluster(bootstrap=bootstrap, prefix=prefix, security=security_of(None)).connection()
    return StepOver(connection=connection, prefix=prefix, url=url)


def _keeper(**options: Any) -> HistoryKeeper:
    try:
        from noontide.apps.history_keeper import HistoryKeeper
    except ImportError as error:
        raise Fault(f"the history needs `pip install 'noontide[history]'` ({error})") from error
    return HistoryKeeper(**options)


def _put_connector(connect_url: str, prefix: str) -> None:
    from noontide.adapters.kafka.connect_rest import ConnectRest
    from noontide.records.history import CONNECTOR_NAME, connector_config

    ConnectRest(connect_url).put(CONNECTOR_NAME, connector_config(prefix))


def _guarded(step: Callable[[], T]) -> T:
    """What database and Connect complain about, as one line."""
    import httpx

    from noontide.core.errors import NoontideError

    try:
        return step()
    except httpx.HTTPStatusError as error:
        raise Fault(f"Kafka Connect refuses: {error.response.text[:500]}") from error
    except httpx.HTTPError as error:
        raise Fault(f"Kafka Connect does not answer: {error}") from error
    except NoontideError as error:
        raise Fault(str(error)) from error


def _days(keep: str) -> int:
    days = parse_span_ms(keep, pointer="--keep") // DAY_MS
    if days < 1:
        raise Fault(f"--keep {keep}: at least one day")
    return days


def _sink_word(sink: ConnectorState | None) -> str:
    if sink is None:
        return "missing"
    return "failed" if sink.failed else "running" if sink.running else "starting or paused"


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) or "-" if isinstance(value, list) else "-" if value is None else str(value)
