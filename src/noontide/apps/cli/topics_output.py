"""What `noontide topics` prints: tables for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from noontide.adapters.kafka.topic_plan import Plan
from noontide.apps.docs_topics import field_rows, variants
from noontide.records.topic_file import TopicFile
from noontide.records.topics import Catalogue


def show_plan(plan: Plan, *, as_json: bool, applied: bool = False) -> None:
    """Print a plan; with `applied`, as what was done."""
    if as_json:
        click.echo(json.dumps(plan_document(plan) | {"applied": applied}, indent=2))
        return
    console = Console()
    for problem in plan.problems:
        console.print(f"[red]problem[/red]  {escape(problem)}")
    _show_missing(console, plan, applied=applied)
    _show_changes(console, plan, applied=applied)
    if plan.write_meta:
        verb = "written" if applied else "to write"
        console.print(f"config/meta {verb}: partitions {plan.meta.partitions}, slots {plan.meta.slots}")
    if plan.unknown:
        console.print(f"not ours, left alone: {escape(', '.join(plan.unknown))}")
    if not plan.pending and not plan.problems:
        console.print("Nothing to do: the cluster is as the topic files say.")


def plan_document(plan: Plan) -> dict[str, object]:
    """A plan as JSON: missing, changes, unknown, problems, replication, meta, write_meta, pending."""
    return {
        "pending": plan.pending,
        "problems": list(plan.problems),
        "missing": [{"topic": topic.name, "partitions": topic.partitions} for topic in plan.missing],
        "changes": [asdict(change) for change in plan.changes],
        "unknown": list(plan.unknown),
        "replication": plan.replication,
        "meta": asdict(plan.meta),
        "write_meta": plan.write_meta,
    }


def as_document(file: TopicFile) -> dict[str, object]:
    """A topic file as JSON, fields named as in the file."""
    return {
        "name": file.template,
        "purpose": file.purpose,
        "key": {"what": file.key, "why": file.key_why},
        "written_by": list(file.written_by),
        "read_by": list(file.read_by),
        "partitions": file.partitions,
        "config": {setting.name: {"value": setting.value, "why": setting.why} for setting in file.config},
        "headers": {header.name: {"description": header.description, "since": header.since} for header in file.headers},
        "tombstone": file.tombstone,
        "by_key": dict(file.by_key),
        "by_kind": dict(file.by_kind),
        "value": dict(file.value),
        "examples": [asdict(example) for example in file.examples],
        "sinks": [asdict(sink) for sink in file.sinks],
    }


def show_topics(catalogue: Catalogue) -> None:
    """One line per topic."""
    rows = ((file.template, file.partitions, file.key, file.purpose) for file in catalogue)
    Console().print(_table(("topic", "partitions", "key", "purpose"), rows))


def show_topic(file: TopicFile) -> None:
    """Everything about one topic except its examples."""
    console = Console()
    console.print(f"[bold]{escape(file.template)}[/bold]\n{escape(file.purpose)}\n")
    console.print(f"key         {escape(file.key)}\n            {escape(file.key_why)}")
    console.print(f"written by  {escape('; '.join(file.written_by))}")
    console.print(f"read by     {escape('; '.join(file.read_by))}")
    console.print(f"partitions  {escape(file.partitions)}")
    if file.tombstone:
        console.print(f"null value  {escape(file.tombstone)}")
    console.print(_table(("setting", "value", "why"), ((item.name, item.value, item.why) for item in file.config)))
    if file.headers:
        headers = ((header.name, header.description, header.since) for header in file.headers)
        console.print(_table(("header", "description", "since"), headers))
    for title, schema in variants(file):
        console.print(f"\n{escape(title)}")
        console.print(_table(("field", "type", "description", "since"), field_rows(schema)))


def _show_missing(console: Console, plan: Plan, *, applied: bool) -> None:
    if plan.missing:
        verb = "created" if applied else "to create"
        rows = ((topic.name, str(topic.partitions), str(plan.replication)) for topic in plan.missing)
        console.print(_table((f"topics {verb}", "partitions", "replicas"), rows))


def _show_changes(console: Console, plan: Plan, *, applied: bool) -> None:
    if plan.changes:
        verb = "changed" if applied else "to change"
        rows = ((item.topic, item.setting, f"{item.old} -> {item.new}", item.why) for item in plan.changes)
        console.print(_table((f"topics {verb}", "setting", "old -> new", "why"), rows))


def _table(heads: Iterable[str], rows: Iterable[tuple[str, ...]]) -> Table:
    table = Table(*heads, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*map(escape, row))
    return table
