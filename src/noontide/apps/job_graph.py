"""The graph of jobs that wait for others, from accepted definitions: who waits for whom, cycles, what is missing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from noontide.core.dependencies import path_to, subtree


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A job of the graph. state: of its cursor; missing: it is named as an upstream and does not exist."""

    job_id: str
    after: tuple[str, ...] = ()
    state: str = ""
    reason: str | None = None
    missing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobGraph:
    """All jobs that wait for others or are waited for. dependants: by upstream."""

    nodes: Mapping[str, Node]
    dependants: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def roots(self) -> list[str]:
        """Jobs that wait for nobody; then one of each cycle that nothing else leads to."""
        found = [name for name, node in self.nodes.items() if not node.after]
        reached = {each for root in found for each in self.below(root)}
        for name in self.nodes:
            if name not in reached:
                found.append(name)
                reached.update(self.below(name))
        return found

    def below(self, root: str) -> list[str]:
        """The job and everything downstream of it."""
        return subtree(root, lambda job: self.dependants.get(job, ()))

    def around(self, job_id: str) -> JobGraph:
        """The part that has to do with one job: what it waits for, directly or not, and what waits for it."""
        above = subtree(job_id, self._after)
        wanted = {*above, *self.below(job_id)}
        return JobGraph(
            nodes={name: node for name, node in self.nodes.items() if name in wanted},
            dependants={
                name: [each for each in waiting if each in wanted]
                for name, waiting in self.dependants.items()
                if name in wanted
            },
        )

    def cycle(self) -> tuple[str, ...] | None:
        """A cycle, as a path that begins and ends with the same job; None when there is none."""
        for name in self.nodes:
            path = path_to(name, self._after(name), self._after)
            if path is not None:
                return (name, *path)
        return None

    def _after(self, job_id: str) -> tuple[str, ...]:
        node = self.nodes.get(job_id)
        return () if node is None else node.after


def graph_of(nodes: Iterable[Node]) -> JobGraph:
    """The graph of these jobs; upstreams that are not among them are missing. Jobs without ties are left out."""
    known = {node.job_id: node for node in nodes}
    dependants: defaultdict[str, list[str]] = defaultdict(list)
    for node in known.values():
        for upstream in node.after:
            dependants[upstream].append(node.job_id)
    missing = {name: Node(job_id=name, missing=True) for name in dependants if name not in known}
    tied = {name: node for name, node in known.items() if node.after or name in dependants}
    return JobGraph(
        nodes=dict(sorted({**tied, **missing}.items())),
        dependants={name: sorted(waiting) for name, waiting in sorted(dependants.items())},
    )


def tree_lines(graph: JobGraph, roots: Iterable[str] | None = None) -> Iterator[str]:
    """The graph for a terminal: each job under one of its upstreams; a job that was shown already is only named."""
    shown: set[str] = set()
    for root in graph.roots() if roots is None else roots:
        yield from _branch(graph, root, shown, "", "")


def _branch(graph: JobGraph, job_id: str, shown: set[str], first: str, rest: str) -> Iterator[str]:
    repeated = job_id in shown
    yield f"{first}{job_id}{_remark(graph, job_id)}{' (see above)' if repeated else ''}"
    if repeated:
        return
    shown.add(job_id)
    below = graph.dependants.get(job_id, ())
    for place, each in enumerate(below, start=1):
        last = place == len(below)
        yield from _branch(graph, each, shown, f"{rest}{'└─ ' if last else '├─ '}", f"{rest}{'   ' if last else '│  '}")


def _remark(graph: JobGraph, job_id: str) -> str:
    node = graph.nodes[job_id]
    if node.missing:
        return "  [does not exist]"
    others = f"  (after {', '.join(node.after)})" if len(node.after) > 1 else ""
    state = f"  [{node.state}{': ' + node.reason if node.reason else ''}]" if node.state not in ("", "active") else ""
    waits = f"  [{node.reason}]" if not state and node.reason else ""
    return others + state + waits


def mermaid_lines(graph: JobGraph) -> Iterator[str]:
    """The graph as a mermaid flowchart, for pages that draw it."""
    numbers = {name: f"j{number}" for number, name in enumerate(graph.nodes)}
    yield "flowchart LR"
    for name, node in graph.nodes.items():
        label = name.replace('"', "#quot;")
        yield f'    {numbers[name]}(["{label}?"])' if node.missing else f'    {numbers[name]}["{label}"]'
    for upstream, waiting in graph.dependants.items():
        for each in waiting:
            yield f"    {numbers[upstream]} --> {numbers[each]}"


def as_document(graph: JobGraph) -> dict[str, object]:
    """The graph for programs."""
    cycle = graph.cycle()
    return {
        "jobs": [
            {"id": node.job_id, "after": list(node.after), "state": node.state or None, "reason": node.reason,
             "exists": not node.missing}
            for node in graph.nodes.values()
        ],
        "cycle": None if cycle is None else list(cycle),
    }  # fmt: skip
