"""The dashboard in a real browser, over the real API, scheduler, worker and broker."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner
from playwright.sync_api import Browser, Page, expect
from tests.adapters.oidc.issuer import AUDIENCE, ec_key, running_issuer
from tests.conftest import RunningKafka
from tests.integration.api_process import SECRET, ApiProcess
from tests.integration.browser import NARROW, Visit, chromium
from tests.integration.installation import Installation, eventually
from tests.integration.scheduler_process import SchedulerProcess
from tests.integration.worker_process import WorkerProcess

from noontide.adapters.kafka.topics import ensure_topics
from noontide.apps.cli.main import main

pytestmark = pytest.mark.browser

HANDLERS = """
import asyncio, os
from noontide import worker

app = worker.App()

@app.handler("report")
async def report(payload: dict | None, ctx: worker.Context):
    while (payload or {}).get("until") and not os.path.exists(payload["until"]):
        await asyncio.sleep(0.05)
        if ctx.cancelled:
            raise worker.Cancelled
    return {"sent": 3}

@app.handler("mail")
async def mail(payload: dict | None, ctx: worker.Context):
    if not os.path.exists((payload or {}).get("answers", "/nowhere")):
        raise ConnectionError("mail.example does not answer")
"""
RETRY = {"backoff": ["PT1S"]}
expect.set_options(timeout=20_000)
MARKUP = "<img src=x onerror=window.broken=1><b>bold</b>"
FAR = {"schedule": "30 2 * * *", "timezone": "Europe/Berlin"}


class Site:
    """A running installation.

    guarded: an API that asks for a token; tokens: by name. Screenshots go to the folder
    NOONTIDE_SCREENSHOTS, if it is set.
    """

    def __init__(self, url: str, browser: Browser, folder: Path) -> None:
        self.url = url
        self.guarded = ""
        self.slots = 0
        self.tokens: dict[str, str] = {}
        self.browser = browser
        self.folder = folder
        self.api = httpx.Client(base_url=url, timeout=30)

    def put(self, job_id: str, **definition: object) -> None:
        """A job, made or replaced behind the back of the page."""
        answer = self.api.put(f"/v1/jobs/{job_id}", json={**FAR, "target": "handler:report", **definition})
        assert answer.status_code == 200, answer.text

    def keep(self, page: Page, name: str) -> None:
        """Keep what the page looks like, if somebody wants to see it."""
        if "NOONTIDE_SCREENSHOTS" in os.environ:
            folder = Path(os.environ["NOONTIDE_SCREENSHOTS"]).absolute()
            page.screenshot(path=folder / f"dashboard-{name}.png", full_page=True)


def made_token(installation: Installation, name: str, *options: str) -> str:
    """The secret of a new token."""
    at = {"NOONTIDE_KAFKA_BOOTSTRAP": installation.bootstrap, "NOONTIDE_PREFIX": installation.layout.prefix}
    done = CliRunner().invoke(main, ["tokens", "create", name, *options], env=at)
    assert done.exit_code == 0, done.output
    return done.stdout.strip()


@pytest.fixture(scope="module")
def site(kafka: RunningKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("dashboard")
    with ExitStack() as stack:
        browser = stack.enter_context(chromium())
        installation = stack.enter_context(Installation.create(kafka.bootstrap, "dashboard."))
        ensure_topics(kafka.bootstrap, installation.layout)
        scheduler = stack.enter_context(SchedulerProcess(installation, folder / "data", secret=SECRET))
        process = stack.enter_context(ApiProcess(installation, folder))
        worker = WorkerProcess(
            folder, "worker", bootstrap=kafka.bootstrap, prefix=installation.layout.prefix, handlers=HANDLERS
        )
        stack.enter_context(worker)
        worker.start()
        scheduler.start().until_owner()
        found = Site(process.url, browser, folder)
        stack.callback(found.api.close)
        found.slots = installation.layout.slots
        issuer = stack.enter_context(running_issuer(ec_key("k1")))
        oidc = ("--oidc-issuer", issuer.url, "--oidc-audience", AUDIENCE, "--oidc-client-id", "dashboard")
        found.guarded = stack.enter_context(ApiProcess(installation, folder, name="guarded", options=oidc)).url
        found.tokens = {
            name: made_token(installation, name, *options)
            for name, options in {
                "reader": ("--role", "viewer", "--tenant", "default"),
                "operator": ("--role", "operator", "--all-tenants"),
            }.items()
        }
        yield found
        assert "Traceback" not in process.log
        assert "Traceback" not in scheduler.log


@pytest.fixture
def visit(site: Site) -> Iterator[Callable[..., Visit]]:
    """Opens pages; nothing may have gone wrong in any of them."""
    opened: list[Visit] = []

    def begin(url: str = site.url, **context: object) -> Visit:
        opened.append(Visit(site.browser, url, **context))
        return opened[-1]

    yield begin
    for each in opened:
        each.close()


def pressed(page: Page, button: str, confirm: str | None = None) -> None:
    """Press a button, and the one of the question that it asks."""
    page.get_by_role("button", name=button, exact=True).click()
    if confirm is not None:
        page.get_by_role("dialog").get_by_role("button", name=confirm, exact=True).click()
        expect(page.get_by_role("dialog")).to_have_count(0)


def test_make_a_job_see_its_times_first_pause_resume_and_delete_it(site: Site, visit: Callable[..., Visit]) -> None:
    page = visit().open("/new")
    page.get_by_label("Id").fill("weekly")
    page.get_by_label("When").fill("30 2 * * sunnday")
    page.get_by_label("Target").fill("handler:report")
    expect(page.get_by_role("alert")).to_contain_text("/schedule")
    page.get_by_label("When").fill("30 2 * 3 L0")  # the last Sunday of March: there is no 02:30 in Berlin
    page.get_by_label("Time zone").fill("Europe/Berlin")
    page.get_by_label("Payload").fill('{"report": "weekly", "big": 12345678901234567890}')
    expect(page.get_by_role("table", name="Next times").get_by_role("row")).to_have_count(11)
    site.keep(page, "new")
    pressed(page, "Create")
    expect(page.get_by_role("heading", name="weekly", level=1, exact=True)).to_be_visible()
    assert b"12345678901234567890" in site.api.get("/v1/jobs/weekly").content
    expect(page.locator(".marks").first).to_contain_text("does not exist in Europe/Berlin")
    page.get_by_role("button", name="Pause", exact=True).click()
    page.get_by_label("Note").fill("until the new figures are in")
    page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    expect(page.locator(".state").first).to_have_text("paused")
    expect(page.locator(".note")).to_have_text("until the new figures are in")
    pressed(page, "Resume", "Resume")
    expect(page.locator(".state").first).to_have_text("active")
    page.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_label("Write its id").fill("weekl")
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_be_visible()
    page.get_by_label("Write its id").fill("weekly")
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_role("heading", name="Jobs", level=1)).to_be_visible()
    assert site.api.get("/v1/jobs/weekly").status_code == 404


def test_start_a_run_watch_it_and_cancel_another(site: Site, visit: Callable[..., Visit]) -> None:
    gate = site.folder / "gate"
    site.put(
        "nightly-report",
        payload={"until": str(gate), "mail_password": "hunter2"},
        lease="PT3S",
        note="Revenue of the day before.",
        labels={"team": "finance"},
    )
    page = visit().open("/jobs/nightly-report")
    pressed(page, "Run now", "Run now")
    expect(page.locator(".state").first).to_have_text("running")
    story = page.locator(".story")
    expect(story).to_contain_text("attempt 1 leased")
    expect(story).to_contain_text("last heartbeat")
    gate.touch()
    expect(page.locator(".state").first).to_have_text("succeeded")
    told = [step.split(" ")[0] for step in story.locator("strong").all_inner_texts()]
    assert [step for step in told if step != "may"] == ["due", "claimed", "queued", "attempt", "succeeded"]
    gate.unlink()
    content = page.locator(".content")
    expect(content).to_contain_text('"sent": 3')
    expect(content).to_contain_text('"mail_password": "•••"')
    assert "hunter2" not in page.content()
    page.get_by_role("link", name="nightly-report").click()
    expect(page.get_by_role("table", name="Runs")).to_contain_text("succeeded")
    pressed(page, "Run now", "Run now")
    expect(page.locator(".state").first).to_have_text("running")
    pressed(page, "Cancel", "Cancel the run")
    expect(page.locator(".state").first).to_have_text("cancelled")


def test_see_it_fail_and_retry_and_start_it_again(site: Site, visit: Callable[..., Visit]) -> None:
    answers = site.folder / "answers"
    site.put("mail-digest", target="handler:mail", retry=RETRY, payload={"answers": str(answers)})
    page = visit().open("/jobs/mail-digest")
    pressed(page, "Run now", "Run now")
    expect(page.locator(".story")).to_contain_text("attempt 1 failed ConnectionError: mail.example does not answer")
    expect(page.locator(".state").first).to_have_text("dead")
    expect(page.locator(".late")).to_contain_text("backoff, and waiting for room in its lane")
    site.keep(page, "run")
    page.get_by_role("link", name="Dead letters").click()
    expect(page.get_by_role("heading", name="ConnectionError: mail.example does not answer")).to_be_visible()
    site.keep(page, "dead-letters")
    answers.touch()
    pressed(page, "Start again", "Start again")
    expect(page.get_by_text("Nothing is dead.")).to_be_visible()
    run_id = site.api.get("/v1/jobs/mail-digest/executions").json()["items"][0]["run_id"]
    eventually(lambda: site.api.get(f"/v1/runs/{run_id}").json()["state"] == "succeeded", what="it ends")
    page.goto(f"{site.url}/#/jobs/mail-digest/why")
    expect(page.get_by_role("table", name="Occurrences")).to_contain_text("succeeded")
    site.keep(page, "why")


def test_somebody_new_finds_why_a_report_was_late_and_runs_it_again(site: Site, visit: Callable[..., Visit]) -> None:
    answers = site.folder / "late-answers"
    site.put("revenue-report", target="handler:mail", retry=RETRY, payload={"answers": str(answers)})
    run_id = site.api.post("/v1/jobs/revenue-report/trigger").json()["run_id"]
    eventually(lambda: site.api.get(f"/v1/runs/{run_id}").json()["attempts"], what="the first attempt fails")
    answers.touch()
    eventually(lambda: site.api.get(f"/v1/runs/{run_id}").json()["state"] == "succeeded", what="it ends")
    page = visit().open("/")
    page.get_by_role("link", name="Jobs", exact=True).click()
    page.get_by_label("Search").fill("report")
    page.get_by_role("table", name="Jobs").get_by_role("link", name="revenue-report").click()
    page.get_by_role("table", name="Runs").get_by_role("link").first.click()
    expect(page.locator(".late")).to_contain_text("Late by")
    expect(page.locator(".late")).to_contain_text("backoff, and waiting for room in its lane")
    expect(page.locator(".story")).to_contain_text("ConnectionError: mail.example does not answer")
    pressed(page, "Run the job again", "Run now")
    expect(page.get_by_role("heading", level=1)).not_to_have_text(run_id)
    expect(page.locator(".state").first).to_have_text("succeeded")


def test_what_a_backfill_would_make_and_then_it_is_made(site: Site, visit: Callable[..., Visit]) -> None:
    site.put("backfilled", timezone="UTC")
    page = visit().open("/jobs/backfilled")
    pressed(page, "Backfill")
    page.get_by_label("From").fill("2026-01-10T00:00")
    page.get_by_label("To, not").fill("2026-01-13T00:00")
    pressed(page, "Look first")
    expect(page.get_by_text("3 runs would be made")).to_be_visible()
    assert site.api.get("/v1/runs", params={"job": "backfilled"}).json()["items"] == []
    pressed(page, "Make 3 runs")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_role("table", name="Runs").get_by_text("succeeded")).to_have_count(3)


def test_two_edit_the_same_job(site: Site, visit: Callable[..., Visit]) -> None:
    site.put("shared", note="first")
    page = visit().open("/jobs/shared/edit")
    page.get_by_label("When").fill("0 4 * * *")
    site.put("shared", note="second")
    pressed(page, "Save")
    expect(page.get_by_role("heading", name="Somebody else has changed it meanwhile")).to_be_visible()
    conflict = page.locator(".conflict")
    expect(conflict).to_contain_text("30 2 * * *")
    expect(conflict).to_contain_text("second")
    assert site.api.get("/v1/jobs/shared").json()["definition"]["schedule"] == {"cron": "30 2 * * *"}
    pressed(page, "Take theirs")
    expect(page.get_by_label("Note")).to_have_value("second")
    page.get_by_label("When").fill("0 5 * * *")
    pressed(page, "Save")
    expect(page.get_by_role("heading", name="shared", level=1, exact=True)).to_be_visible()
    now = site.api.get("/v1/jobs/shared").json()["definition"]
    assert (now["schedule"], now["note"]) == ({"cron": "0 5 * * *"}, "second")


def test_an_edit_keeps_lines_of_a_note_and_a_short_target(site: Site, visit: Callable[..., Visit]) -> None:
    far = "https://reports.example/run"
    site.put("lines", note="Revenue.\nAsk finance first.", target={"http": {"url": far}}, schedule={"every": "P1DT2H"})
    page = visit().open("/jobs/lines")
    expect(page.locator(".facts")).to_contain_text("every 1 d 2 h")
    page.get_by_role("link", name="Edit").click()
    expect(page.get_by_label("Target")).to_have_value(far)
    page.get_by_label("Payload").fill("[1]")
    pressed(page, "Save")
    expect(page.get_by_role("heading", name="lines", level=1, exact=True)).to_be_visible()
    now = site.api.get("/v1/jobs/lines").json()["definition"]
    assert (now["note"], now["payload"], now["target"]["http"]["url"]) == ("Revenue.\nAsk finance first.", [1], far)


@pytest.mark.parametrize("leave", ["Escape", "Not now"])
def test_a_question_is_answered_and_left_with_the_keyboard(site: Site, visit: Callable[..., Visit], leave: str) -> None:
    site.put("asked-about")
    page = visit().open("/jobs/asked-about")
    pause = page.get_by_role("button", name="Pause", exact=True)
    pause.press("Enter")
    dialog = page.get_by_role("dialog", name="Pause asked-about?")
    expect(dialog.get_by_label("Note")).to_be_focused()
    if leave == "Escape":
        page.keyboard.press("Escape")
    else:
        dialog.get_by_role("button", name=leave).press("Enter")
    expect(dialog).to_have_count(0)
    expect(pause).to_be_focused()
    assert site.api.get("/v1/jobs/asked-about").json()["state"] == "active"


@pytest.mark.parametrize("path", ["/dead", "/tenants", "/jobs/left-open/why"])
def test_pages_that_ask_again_do_so_at_a_pace_and_not_while_nobody_looks(
    site: Site, visit: Callable[..., Visit], path: str
) -> None:
    site.put("left-open")
    screen = visit()
    screen.page.clock.install()
    page = screen.open(path)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    with page.expect_response(re.compile("/v1/")):
        page.clock.run_for(60_000)
    assert max(Counter(asked).values()) <= 12
    hide(page, hidden=True)
    page.clock.run_for(30_000)  # what was under way
    asked.clear()
    page.clock.run_for(90_000)
    assert asked == []
    with page.expect_response(re.compile("/v1/")):
        hide(page, hidden=False)
    expect(page.locator(".connection")).to_have_text("refreshing")


def hide(page: Page, *, hidden: bool) -> None:
    """The tab goes behind another, or comes back."""
    page.evaluate(
        """hidden => {
            Object.defineProperty(document, "hidden", {value: hidden, configurable: true});
            document.dispatchEvent(new Event("visibilitychange"));
        }""",
        hidden,
    )


def test_search_filter_and_pages(site: Site, visit: Callable[..., Visit]) -> None:
    for number in range(30):
        site.put(f"many-{number:02}", labels={"team": "odd" if number % 2 else "even"})
    page = visit().open("/jobs")
    rows = page.get_by_role("table", name="Jobs").locator("tbody tr")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="To the content")).to_be_focused()
    page.get_by_label("Search").fill("many-")
    expect(rows.first).to_contain_text("many-00")
    expect(rows).to_have_count(25)
    pressed(page, "Next →")
    expect(rows).to_have_count(5)
    expect(rows.first).to_contain_text("many-25")
    page.get_by_label("Label").fill("team=odd")
    expect(rows).to_have_count(15)
    expect(page.locator(".begins")).to_contain_text("many-00 many-01")
    page.get_by_label("Order").select_option("due")
    expect(rows).to_have_count(15)
    page.get_by_label("State").select_option("paused")
    expect(page.get_by_text("No job is like that.")).to_be_visible()
    expect(page.get_by_text("That is all: looked at")).to_be_visible()


def test_changes_are_pushed_and_a_lost_stream_is_said_and_begun_again(site: Site, visit: Callable[..., Visit]) -> None:
    site.put("pushed", note="first")
    screen = visit()
    asked: list[str] = []
    screen.page.on("request", lambda request: asked.append(request.url))
    page = screen.open("/jobs/pushed")
    expect(page.locator(".connection")).to_have_text("live")
    for note in ("second", "third"):
        site.put("pushed", note=note)
        expect(page.locator(".own-note")).to_have_text(note)
    assert sum(url.endswith("/v1/jobs/pushed") for url in asked) == 1
    page.context.set_offline(True)
    expect(page.get_by_text("The connection to the API is lost")).to_be_visible()
    site.put("pushed", note="fourth")
    page.context.set_offline(False)
    expect(page.locator(".own-note")).to_have_text("fourth")
    expect(page.get_by_text("The connection to the API is lost")).to_have_count(0)


def test_what_is_due_what_ended_and_who_does_it(site: Site, visit: Callable[..., Visit]) -> None:
    site.put("often", schedule={"every": "PT1S"})
    page = visit().open("/")
    figures = page.locator(".figures")
    expect(figures).to_contain_text("Due in the next hour")
    expect(figures.locator(".figure", has_text="Failed, last hour")).to_contain_text("dead of")
    expect(page.get_by_role("img", name="Next hour, by minute")).to_be_visible()
    ended = page.get_by_role("img", name="Ended:")
    expect(ended).to_have_attribute("aria-label", re.compile(r"Ended: [1-9]"))
    ended.focus()
    page.keyboard.press("End")
    expect(
        page.locator(".said-here", has_text=re.compile("[0-9]:[0-9]{2} · "))
    ).to_be_visible()  # what is under the mark
    expect(page.get_by_text("No agents are running")).to_be_visible()
    expect(page.get_by_role("table", name="Lanes")).to_contain_text("default")
    expect(page.get_by_role("table", name="Slots").locator("tbody tr")).to_have_count(site.slots)
    site.put("often", paused=True)


def test_markup_stays_text(site: Site, visit: Callable[..., Visit]) -> None:
    site.put(
        "markup",
        note=MARKUP,
        payload={"text": MARKUP},
        labels={"team": MARKUP},
        target="handler:mail",
        retry={"max_attempts": 1},
    )
    screen = visit()
    page = screen.open("/jobs/markup")
    expect(page.get_by_text(MARKUP).first).to_be_visible()
    run_id = site.api.post("/v1/jobs/markup/trigger").json()["run_id"]
    screen.open(f"/runs/{run_id}")
    expect(page.locator(".content")).to_contain_text(MARKUP)
    screen.open(f"/jobs?text={MARKUP.replace(' ', '%20')}")
    expect(page.get_by_label("Search")).to_have_value(MARKUP)
    screen.open(f"/jobs/{MARKUP.replace(' ', '%20').replace('/', '%2F')}")
    expect(page.get_by_role("heading", level=1)).to_have_text(MARKUP)
    assert page.evaluate("window.broken") is None


@pytest.mark.parametrize("scheme, size", [("light", "wide"), ("dark", "wide"), ("light", "narrow"), ("dark", "narrow")])
def test_every_page_is_accessible_and_fits(site: Site, visit: Callable[..., Visit], scheme: str, size: str) -> None:
    site.put("nightly-report", note="Revenue of the day before.", labels={"team": "finance"})
    run_id = site.api.post("/v1/jobs/nightly-report/trigger").json()["run_id"]
    screen = visit(color_scheme=scheme, bypass_csp=True, **({"viewport": NARROW} if size == "narrow" else {}))
    paths = {
        "overview": "/", "jobs": "/jobs?text=nightly-report", "a-job": "/jobs/nightly-report",
        "edit": "/jobs/nightly-report/edit", "runs": "/runs?job=nightly-report", "a-run": f"/runs/{run_id}",
        "new": "/new", "dead": "/dead", "tenants": "/tenants",
        "occurrences": "/jobs/nightly-report/why",
    }  # fmt: skip
    for name, path in paths.items():
        site.keep(screen.open(path), f"{name}-{scheme}-{size}")
        look_at(screen, name)
    entrance = visit(url=site.guarded, color_scheme=scheme, bypass_csp=True, viewport=screen.page.viewport_size)
    site.keep(entrance.open("/jobs"), f"sign-in-{scheme}-{size}")
    look_at(entrance, "sign-in")


def look_at(screen: Visit, name: str) -> None:
    """Nothing that axe finds, nothing to scroll to at the side, and the first thing that Tab reaches can be seen."""
    assert (name, screen.violations()) == (name, [])
    assert (name, screen.too_wide_by()) == (name, 0)
    screen.page.keyboard.press("Tab")
    outline = screen.page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert (name, outline) != (name, "none")


def test_who_may_only_look_has_no_buttons(site: Site, visit: Callable[..., Visit]) -> None:
    site.put("looked-at")
    site.put("not-theirs", tenant="billing")
    page = visit(url=site.guarded).open("/jobs")
    expect(page.get_by_label("Token")).to_be_visible()
    page.get_by_label("Token").fill("nt_nobody_knows")
    pressed(page, "Sign in")
    expect(page.get_by_role("alert")).to_contain_text("token")
    page.get_by_label("Token").fill(site.tokens["reader"])
    pressed(page, "Sign in")
    expect(page.get_by_role("link", name="looked-at")).to_be_visible()
    expect(page.get_by_role("link", name="not-theirs")).to_have_count(0)
    expect(page.get_by_role("link", name="New job")).to_have_count(0)
    page.get_by_role("link", name="looked-at").click()
    expect(page.get_by_role("table", name="Next times")).to_be_visible()
    assert page.get_by_role("button").all_inner_texts() == ["Sign out"]
    pressed(page, "Sign out")
    page.get_by_label("Token").fill(site.tokens["operator"])
    pressed(page, "Sign in")
    expect(page.get_by_role("button", name="Run now")).to_be_visible()
    assert page.evaluate("localStorage.length") == 0


def test_sign_in_at_the_issuer_and_come_back_to_the_page(site: Site, visit: Callable[..., Visit]) -> None:
    site.put("of-billing", tenant="billing")
    screen = visit(url=site.guarded)
    page = screen.open("/jobs")
    page.get_by_role("button", name=re.compile("Sign in at 127.0.0.1:")).click()
    expect(page.get_by_role("link", name="of-billing")).to_be_visible()
    expect(page.get_by_text("user:ada")).to_be_visible()
    assert page.url.removeprefix(site.guarded) == "/#/jobs"
    assert [re.sub(r"^http://127.0.0.1:[0-9]+(/[a-z]+).*", r"\1", each) for each in screen.elsewhere] == ["/authorize"]
    screen.elsewhere.clear()
