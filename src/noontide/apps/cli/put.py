"""Putting definitions: check all of them here, send them, and say what became of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import click

from noontide.adapters.system_clock import new_id, wall_now_ms
from noontide.apps.cli.asking import Answers, Asker, Request, sentence
from noontide.apps.cli.common import REFUSED, Cluster, Fault
from noontide.apps.cli.definitions import Source
from noontide.apps.cli.spans import words
from noontide.apps.cli.tables import note, plural, show_json, show_table, utc
from noontide.core.definition import DefinitionContext, parse_definition
from noontide.core.errors import InvalidDefinition, Problem

DETAILS_MAX: Final = 20
"""Up to so many jobs are shown one by one, with their next times."""
PROGRESS_MIN: Final = 2_000
PROBLEMS_MAX: Final = 100
CURSOR_TIMEOUT_S: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How definitions are put. timeout_s: how long nothing may be decided."""

    domain: str = "public"
    wait: bool = True
    keep_going: bool = False
    timeout_s: float = 30.0
    as_json: bool = False


def put(sources: Sequence[Source], *, cluster: Cluster, options: Options) -> None:
    """Check, send and report. Raises Fault or exits with 1 when anything was not accepted, 3 when nobody answered."""
    requests, faulty = checked(sources, prefix=cluster.prefix)
    if faulty and (not options.keep_going or not requests):
        raise Fault(f"{plural(faulty, 'definition')} of {len(sources):,} cannot be accepted; nothing was sent")
    layout = cluster.layout()
    few = len(requests) <= DETAILS_MAX
    follow = () if not options.wait else ("jobs", "rejected", "state") if few else ("jobs", "rejected")
    with Asker(cluster.connection(), layout, domain=options.domain, follow=follow) as asker:
        _send(asker, requests)
        if options.wait:
            _await(asker, requests, options)
        _report(asker.answers, requests, options)
    if faulty or asker.answers.refused:
        raise SystemExit(REFUSED)


def checked(sources: Sequence[Source], *, prefix: str) -> tuple[list[Request], int]:
    """Requests for what can be accepted; problems of the rest are said, and how many definitions they are in."""
    now_ms, problems = wall_now_ms(), _Problems()
    requests: list[Request] = []
    with _progress(len(sources), "checking") as move:
        for number, source in enumerate(sources, start=1):
            context = DefinitionContext(key=None, tenant=None, created_ms=now_ms, new_id=new_id(), topic_prefix=prefix)
            try:
                definition = parse_definition(source.text, context=context)
            except InvalidDefinition as refused:
                problems.faulty += 1
                problems.say(source, refused.problems)
                continue
            requests.append(Request(definition.job.id, source.text, source.place))
            problems.say(source, definition.warnings, kind="warning: ")
            if number % PROGRESS_MIN == 0:
                move(PROGRESS_MIN)
    problems.end()
    return requests, problems.faulty


class _Problems:
    """Says what is wrong where, a bounded number of times. faulty: definitions that cannot be accepted."""

    def __init__(self) -> None:
        self.faulty = 0
        self._said = 0

    def say(self, source: Source, problems: Iterable[Problem], *, kind: str = "") -> None:
        """One line for each."""
        for problem in problems:
            self._said += 1
            if self._said <= PROBLEMS_MAX:
                note(f"{source.place_of(problem.pointer)}: {kind}{problem}")

    def end(self) -> None:
        """Say how many were left out."""
        if self._said > PROBLEMS_MAX:
            note(f"... and {self._said - PROBLEMS_MAX:,} more problems")


def _send(asker: Asker, requests: Sequence[Request]) -> None:
    with _progress(len(requests), "sending") as move:
        seen = 0

        def sent(count: int) -> None:
            nonlocal seen
            move(count - seen)
            seen = count

        asker.send(requests, on_sent=sent)


def _await(asker: Asker, requests: Sequence[Request], options: Options) -> None:
    with _progress(len(requests), "accepted") as move:
        asker.await_answers(timeout_s=options.timeout_s, on_answered=move)
    if len(requests) <= DETAILS_MAX:
        asker.await_cursors(set(asker.answers.accepted), timeout_s=CURSOR_TIMEOUT_S)


@contextmanager
def _progress(total: int, label: str) -> Iterator[Callable[[int], None]]:
    """A progress bar on standard error when there are many; gives what moves it on."""
    hidden = total < PROGRESS_MIN
    with click.progressbar(length=total, label=label, file=sys.stderr, hidden=hidden) as bar:
        yield bar.update


def _report(answers: Answers, requests: Sequence[Request], options: Options) -> None:
    for refused in answers.refused:
        note(f"{refused.request.place or refused.request.job_id}: refused: {sentence(refused.problems)}")
    if options.as_json:
        show_json(_as_json(answers, requests, options))
        return
    if not options.wait:
        if len(requests) <= DETAILS_MAX:
            show_table(("id",), ([request.job_id] for request in requests), empty="")
        click.echo(f"{plural(len(answers.origins), 'definition')} sent")
        return
    if len(requests) <= DETAILS_MAX:
        show_table(("id", "next due", "starts", ""), _rows(answers), empty="")
    refused_too = f", {len(answers.refused):,} refused" if answers.refused else ""
    click.echo(f"{plural(len(answers.accepted), 'job')} accepted{refused_too}")


def _rows(answers: Answers) -> Iterable[tuple[str, str, str, str]]:
    for job_id in answers.accepted:
        cursor = answers.cursors.get(job_id)
        if cursor is None:
            yield job_id, "", "", ""
        elif cursor.due_ms is None or cursor.start_ms is None:
            yield job_id, "none", "", f"{cursor.state}" + (f": {cursor.reason}" if cursor.reason else "")
        elif cursor.start_ms == cursor.due_ms:
            yield job_id, utc(cursor.due_ms), "on time", ""
        else:
            yield job_id, utc(cursor.due_ms), f"+ {words(cursor.start_ms - cursor.due_ms)}", "spread by its id"


def _as_json(answers: Answers, requests: Sequence[Request], options: Options) -> dict[str, object]:
    shown: dict[str, object] = {"sent": len(answers.origins)}
    if options.wait:
        shown |= {
            "accepted": len(answers.accepted),
            "refused": [
                {
                    "id": each.request.job_id,
                    "place": each.request.place,
                    "problems": [{"pointer": found.pointer, "message": found.message} for found in each.problems],
                }
                for each in answers.refused
            ],
        }
    if len(requests) <= DETAILS_MAX:
        shown["jobs"] = [_job_json(request.job_id, answers) for request in requests]
    return shown


def _job_json(job_id: str, answers: Answers) -> dict[str, object]:
    cursor = answers.cursors.get(job_id)
    shown: dict[str, object] = {"id": job_id}
    if job_id in answers.etags:
        shown["etag"] = answers.etags[job_id]
    if cursor is not None:
        shown |= {"state": cursor.state, "next_due": utc(cursor.due_ms) or None}
        shown["start_after"] = utc(cursor.start_ms) or None if cursor.due_ms is not None else None
    return shown
