"""When a request is sent again, and what the answers become; against a transport that plays the API."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import orjson
import pytest

from noontide.client import (
    ApiError,
    AsyncClient,
    Client,
    ClientSettings,
    Conflict,
    Forbidden,
    Invalid,
    NoAnswer,
    NotDecided,
    NotFound,
    StaleVersion,
    TooManyRequests,
    Unauthorised,
    Unavailable,
)  # fmt: skip

JOB = {"id": "a", "tenant": "default", "state": "active", "next_due": "2026-03-02T06:00:00Z", "etag": "api-1-2"}
SETTINGS = ClientSettings(attempts_max=3, pause_ms=1, pause_max_ms=1_000, page_items=2, batch_lines=2)


class Script:
    """Answers in turn; an exception is raised. waits: seconds between attempts."""

    def __init__(self, *answers: httpx.Response | Exception | Callable[[httpx.Request], httpx.Response]) -> None:
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []
        self.waits: list[float] = []
        self.client = Client("http://api", token="t0ken", settings=SETTINGS, transport=httpx.MockTransport(self))
        self.client._wait = self._waited  # type: ignore[assignment]

    def _waited(self, pause_s: float) -> bool:
        self.waits.append(pause_s)
        return True

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer(request) if callable(answer) else answer


def ok(document: object = JOB, status: int = 200, **headers: str) -> httpx.Response:
    return httpx.Response(status, content=orjson.dumps(document), headers=headers)


def problem(status: int, kind: str = "x", **headers: str) -> httpx.Response:
    document = {"type": f"urn:noontide:problem:{kind}", "detail": "why", "errors": [{"pointer": "/a", "message": "m"}]}
    return httpx.Response(status, content=orjson.dumps(document), headers=headers)


def test_an_answer_is_typed_and_the_token_is_sent() -> None:
    script = Script(ok({**JOB, "new_member": 1}))
    job = script.client.get_job("a")
    assert job.next_due is not None
    assert (job.id, job.state, job.next_due.isoformat()) == ("a", "active", "2026-03-02T06:00:00+00:00")
    assert script.requests[0].headers["authorization"] == "Bearer t0ken"


def test_a_create_is_sent_again_under_the_same_key() -> None:
    script = Script(httpx.ReadTimeout("late"), problem(502), ok(status=201))
    assert script.client.create_job({"schedule": "0 6 * * *", "target": "handler:x"}).id == "a"
    keys = {request.headers["idempotency-key"] for request in script.requests}
    assert len(script.requests) == 3
    assert len(keys) == 1
    other = Script(ok(status=201))
    other.client.create_job({"target": "handler:x", "idempotency_key": "mine"})
    assert other.requests[0].headers["idempotency-key"] == "mine"
    assert keys != {"mine"}


@pytest.mark.parametrize("failure", [httpx.ReadTimeout("x"), problem(502), problem(504), problem(500)])
def test_what_may_have_been_done_is_not_done_again(failure: httpx.Response | Exception) -> None:
    script = Script(failure, ok({"run_id": "a:m1", "job_id": "a", "tenant": "t", "state": "pending"}))
    with pytest.raises((NoAnswer, Unavailable)):
        script.client.retry_run("a:m1")
    assert len(script.requests) == 1


@pytest.mark.parametrize("failure", [httpx.ConnectError("x"), problem(503), problem(429, "too-many")])
def test_what_was_not_done_is_done_again(failure: httpx.Response | Exception) -> None:
    script = Script(failure, ok({"run_id": "a:m1", "job_id": "a", "tenant": "t", "state": "pending"}))
    assert script.client.retry_run("a:m1").state == "pending"


def test_retry_after_is_obeyed_up_to_a_bound() -> None:
    script = Script(problem(503, **{"retry-after": "1"}), problem(429, **{"retry-after": "3600"}), ok())
    script.client.get_job("a")
    assert [1 <= wait < 1.1 for wait in script.waits] == [True, True]


def test_it_gives_up_after_so_many_attempts() -> None:
    script = Script(*[httpx.ConnectError("refused")] * 9)
    with pytest.raises(NoAnswer, match="GET /v1/jobs/a: refused"):
        script.client.get_job("a")
    assert len(script.requests) == 3


def test_a_quota_is_not_a_rate() -> None:
    script = Script(problem(429, "quota"))
    with pytest.raises(TooManyRequests):
        script.client.get_job("a")


@pytest.mark.parametrize(
    "status, kind",
    [(400, Invalid), (422, Invalid), (413, Invalid), (401, Unauthorised), (403, Forbidden), (404, NotFound),
     (409, Conflict), (412, StaleVersion), (418, ApiError)],
)  # fmt: skip
def test_refusals_by_what_one_would_do(status: int, kind: type[ApiError]) -> None:
    script = Script(problem(status, "some-kind"))
    with pytest.raises(kind, match="why") as refused:
        script.client.get_job("a")
    assert (refused.value.status, refused.value.kind) == (status, "some-kind")
    assert [each.pointer for each in refused.value.problems] == ["/a"]


def test_an_answer_of_something_else_in_between_is_an_error_too() -> None:
    script = Script(httpx.Response(403, content=b"<html>proxy</html>"))
    with pytest.raises(Forbidden, match="HTTP 403"):
        script.client.get_job("a")


def test_a_delete_whose_first_answer_was_lost_is_done() -> None:
    Script(httpx.ReadError("reset"), problem(404)).client.delete_job("a")
    with pytest.raises(NotFound):
        Script(problem(404)).client.delete_job("a")
    with pytest.raises(NotFound):
        Script(httpx.ConnectError("refused"), problem(404)).client.delete_job("a")


def test_a_stored_write_is_asked_for_until_it_is_decided() -> None:
    stored = ok({"state": "pending"}, 202, location="/v1/requests/1-2-3")
    script = Script(stored, ok({"state": "pending"}), ok({"state": "decided", "verdict": "accepted"}), ok())
    assert script.client.change_job("a", {"note": "x"}).etag == "api-1-2"
    assert [request.url.path for request in script.requests][1:] == ["/v1/requests/1-2-3"] * 2 + ["/v1/jobs/a"]


def test_a_stored_write_may_be_refused_or_stay_open() -> None:
    stored = {"status": 202, "location": "/v1/requests/1-2-3"}
    verdict = {
        "state": "decided",
        "verdict": "rejected",
        "refusal": "conflict",
        "problems": [{"pointer": "/id", "message": "taken"}],
    }
    with pytest.raises(Conflict, match="/id taken"):
        Script(ok({"state": "pending"}, **stored), ok(verdict)).client.change_job("a", {})  # type: ignore[arg-type]
    many = [ok({"state": "pending"}) for _ in range(300)]
    with pytest.raises(NotDecided, match="1-2-3"):
        Script(ok({"state": "pending"}, **stored), *many).client.change_job("a", {})  # type: ignore[arg-type]


def test_pages_are_turned_until_the_last() -> None:
    script = Script(
        ok({"items": [JOB, JOB], "next_cursor": "c 1"}), ok({"items": [], "next_cursor": "c2"}), ok({"items": [JOB]})
    )
    found = list(script.client.jobs(tenant="billing", labels=["team=x", "y"]))
    assert len(found) == 3
    assert [request.url.params.get("cursor") for request in script.requests] == [None, "c 1", "c2"]
    assert script.requests[0].url.params.get_list("label") == ["team=x", "y"]
    assert {request.url.params["limit"] for request in script.requests} == {"2"}


def test_batches_are_sent_in_parts_and_lines_keep_their_numbers() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        assert request.headers["content-type"] == "application/x-ndjson"
        lines = request.content.splitlines()
        said = [{"line": number, "status": 201, "id": orjson.loads(line)["id"]} for number, line in enumerate(lines, 1)]
        return httpx.Response(200, content=b"\n".join(map(orjson.dumps, said)))

    script = Script(answer, answer)
    found = list(script.client.put_jobs([{"id": "a"}, b'{"id":"b"}', {"id": "c"}]))
    assert [(each.line, each.id, each.accepted) for each in found] == [(1, "a", True), (2, "b", True), (3, "c", True)]


@pytest.mark.parametrize("job_id", ["..", ".", ""])
def test_ids_that_would_lead_elsewhere_are_not_sent(job_id: str) -> None:
    script = Script()
    with pytest.raises(ValueError, match="names nothing"):
        script.client.get_job(job_id)
    assert script.requests == []


def test_ids_are_one_segment() -> None:
    script = Script(ok())
    script.client.get_job("a/../b?c#d")
    assert script.requests[0].url.raw_path == b"/v1/jobs/a%2F..%2Fb%3Fc%23d"


async def test_the_client_for_asyncio_does_the_same() -> None:
    answers = [problem(503), ok(), ok({"items": [JOB], "next_cursor": "c"}), ok({"items": [JOB]})]

    async def answer(_request: httpx.Request) -> httpx.Response:
        return answers.pop(0)

    async with AsyncClient("http://api", settings=SETTINGS, transport=httpx.MockTransport(answer)) as client:
        assert (await client.get_job("a")).id == "a"
        assert [job.id async for job in client.jobs()] == ["a", "a"]


def test_both_clients_have_the_same_methods() -> None:
    def methods(kind: type) -> set[str]:
        return {name for name in vars(kind) if not name.startswith("_")} - {"close", "aclose"}

    assert methods(Client) == methods(AsyncClient)


async def test_what_is_behind_the_recent_ones_is_an_error_while_the_history_is_away() -> None:
    run = {"run_id": "a:m1", "job_id": "a", "tenant": "t", "state": "dead"}
    page = {"items": [run], "next_cursor": "c", "older": "unreachable"}
    found = Script(ok(page)).client.executions("a")
    assert next(found).run_id == "a:m1"
    with pytest.raises(Unavailable, match="older executions"):
        next(found)

    async def answer(_request: httpx.Request) -> httpx.Response:
        return ok(page)

    async with AsyncClient("http://api", settings=SETTINGS, transport=httpx.MockTransport(answer)) as client:
        others = client.executions("a")
        assert (await anext(others)).run_id == "a:m1"
        with pytest.raises(Unavailable, match="older executions"):
            await anext(others)


def test_methods_say_what_they_do() -> None:
    assert Client.get_job.__doc__ == "Read a job."
    assert Client("http://api").get_job.__doc__ == "Read a job."
