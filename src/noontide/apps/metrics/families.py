"""Families of metrics out of what the actors count."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from noontide.core.spread import Spread

Labels = tuple[str, ...]


def counters(name: str, text: str, labels: Sequence[str], values: Mapping[Labels, float]) -> Metric:
    """A counter; the exposition adds `_total` to its name."""
    family = CounterMetricFamily(name, text, labels=labels)
    for label, value in values.items():
        family.add_metric(label, value)
    return family


def gauges(name: str, text: str, labels: Sequence[str], values: Mapping[Labels, float]) -> Metric:
    """A value that goes up and down."""
    family = GaugeMetricFamily(name, text, labels=labels)
    for label, value in values.items():
        family.add_metric(label, value)
    return family


def histograms(name: str, text: str, labels: Sequence[str], values: Mapping[Labels, Spread]) -> Metric:
    """A histogram in seconds of spreads in milliseconds."""
    family = HistogramMetricFamily(name, text, labels=labels)
    for label, spread in values.items():
        family.add_metric(label, list(_buckets(spread)), sum_value=spread.total / 1000)
    return family


def _buckets(spread: Spread) -> Iterator[tuple[str, float]]:
    below = 0
    for bound, count in zip((*spread.bounds, float("inf")), list(spread.counts), strict=True):
        below += count
        yield ("+Inf" if bound == float("inf") else str(bound / 1000)), below
