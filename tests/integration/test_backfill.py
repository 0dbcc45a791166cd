"""A backfill from the command line through the real broker, with the scheduler killed in the middle of it."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.conftest import RunningKafka
from tests.integration.installation import Installation
from tests.integration.scheduler_process import SchedulerProcess

from noontide.apps.cli.main import main

RUNS = 10_000
FROM = datetime(2026, 1, 1, tzinfo=UTC)
TO = FROM + timedelta(minutes=RUNS)


@pytest.mark.slow
def test_every_occurrence_reaches_the_topic_once_though_the_scheduler_is_killed(
    kafka: RunningKafka, prefix: str, tmp_path: Path
) -> None:
    with Installation.create(kafka.bootstrap, prefix) as installation:
        orders = installation.create_target("orders", partitions=3)

        def command(*arguments: str) -> str:
            where = ("--bootstrap", kafka.bootstrap, "--prefix", prefix)
            done = CliRunner().invoke(main, ["jobs", *arguments, *where])
            assert done.exit_code == 0, done.output
            return done.stdout

        asked = ("backfill", "a", "--from", FROM.isoformat(), "--to", TO.isoformat())
        with SchedulerProcess(installation, tmp_path / "data") as scheduler:
            scheduler.start().until_owner()
            command("add", "--id", "a", "--cron", "* * * * *", "--topic", orders)
            said = command(*asked, "--dry-run")
            assert said.startswith(f"{RUNS:,} runs would be made, 2026-01-01T00:00:00.000Z to ")
            made = json.loads(command(*asked, "--json"))
            assert (made["runs"], made["skipped"], made["dry_run"]) == (RUNS, 0, False)
            before = len(installation.log(orders).until(lambda seen: len(seen) > 500))
            scheduler.kill()
            assert before < RUNS
            scheduler.start().until_owner()
            past = TO.isoformat()[:19].encode()

            def backfilled() -> list[str]:
                seen = installation.log(orders).look()
                return [each.run_id for each in seen if (each.headers["noontide-due"] or b"") < past]

            installation.log(orders).until(lambda _: len(backfilled()) >= RUNS, within_s=60)
            assert json.loads(command(*asked, "--json"))["skipped"] == RUNS
            counts = Counter(backfilled())
        expected = {f"a:{FROM + timedelta(minutes=minute):%Y%m%dT%H%M%SZ}" for minute in range(RUNS)}
        assert counts.keys() == expected
        assert set(counts.values()) == {1}
