"""The graph as people and programs see it."""

from __future__ import annotations

from noontide.apps.job_graph import JobGraph, Node, as_document, graph_of, mermaid_lines, tree_lines


def _graph(**after: str) -> JobGraph:
    return graph_of(Node(job_id=job, after=tuple(upstreams.split())) for job, upstreams in after.items())


DIAMOND = _graph(extract="", clean="extract", rates="extract", report="clean rates", alone="")


def test_a_tree_shows_each_job_under_its_upstream_and_only_once_in_full() -> None:
    assert list(tree_lines(DIAMOND)) == [
        "extract",
        "├─ clean",
        "│  └─ report  (after clean, rates)",
        "└─ rates",
        "   └─ report  (after clean, rates) (see above)",
    ]


def test_jobs_without_ties_are_left_out_and_missing_ones_are_there() -> None:
    graph = _graph(b="a")
    assert list(tree_lines(graph)) == ["a  [does not exist]", "└─ b"]
    assert list(graph.nodes) == ["a", "b"]


def test_states_and_reasons_are_remarks() -> None:
    nodes = [Node(job_id="a", state="blocked", reason="cycle: a → b"), Node(job_id="b", after=("a",), state="paused")]
    assert list(tree_lines(graph_of(nodes))) == ["a  [blocked: cycle: a → b]", "└─ b  [paused]"]


def test_a_cycle_is_found_and_drawn_once() -> None:
    graph = _graph(a="b", b="c", c="a", d="a")
    assert graph.cycle() in (("a", "b", "c", "a"), ("b", "c", "a", "b"), ("c", "a", "b", "c"))
    assert len(list(tree_lines(graph))) == 5
    assert DIAMOND.cycle() is None
    assert as_document(graph)["cycle"] is not None


def test_the_part_around_a_job() -> None:
    graph = _graph(a="", b="a", c="b", x="a", y="")
    assert list(graph.around("b").nodes) == ["a", "b", "c"]
    assert DIAMOND.below("extract") == ["extract", "clean", "rates", "report"]


def test_mermaid() -> None:
    assert list(mermaid_lines(_graph(b="a c", c=""))) == [
        "flowchart LR",
        '    j0(["a?"])',
        '    j1["b"]',
        '    j2["c"]',
        "    j0 --> j1",
        "    j2 --> j1",
    ]
