"""`--metrics-port`: the same for every process."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from noontide.apps.metrics.serving import MetricsOptions


def metrics_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `--metrics-port` and `--metrics-host`, as one argument `metrics`: MetricsOptions, or None without a port."""

    @wraps(command)
    def run(metrics_port: int | None, metrics_host: str, **options: Any) -> Any:
        return command(metrics=_chosen(metrics_port, metrics_host), **options)

    port = click.option(
        "--metrics-port", type=click.IntRange(0, 65_535), envvar="NOONTIDE_METRICS_PORT", show_envvar=True,
        help="Serve metrics for Prometheus on this port; 0 takes any.  [default: no metrics]",
    )  # fmt: skip
    host = click.option(
        "--metrics-host", envvar="NOONTIDE_METRICS_HOST", default="127.0.0.1", show_default=True, show_envvar=True,
        help="Address the metrics are served on.",
    )  # fmt: skip
    return port(host(run))


def _chosen(port: int | None, host: str) -> MetricsOptions | None:
    if port is None:
        return None
    from noontide.apps.metrics.serving import MetricsOptions

    return MetricsOptions(port=port, host=host)
