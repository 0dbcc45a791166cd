"""Settings come from variables and assignments, and every one of them is described."""

from pathlib import Path

import pytest

from noontide.apps.settings import scheduler_settings, settings, settings_page
from noontide.core.errors import InvalidDefinition

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"


def test_the_page_is_fresh() -> None:
    assert PAGE.read_text("utf-8") == settings_page()


def test_every_setting_has_a_meaning_or_a_name_that_says_it() -> None:
    silent = [setting.name for setting in settings() if not setting.meaning]
    assert [name for name in silent if not name.endswith(("_bytes", "_chars", "_ms", "_max", "_runs"))] == []


def test_assignments_win_over_variables_and_those_over_defaults() -> None:
    environment = {"NOONTIDE_SCHEDULER_DUE_MAX": "5", "NOONTIDE_LIMIT_NOTE_MAX_CHARS": "7", "NOONTIDE_PREFIX": "x."}
    chosen = scheduler_settings(environment, ["due_max=6"])
    assert (chosen.due_max, chosen.definition.note_max_chars, chosen.cycle_gap_ms) == (6, 7, 12)


@pytest.mark.parametrize("assignment", ["due_max=0", "due_max=-1", "due_max=1.5", "due_max=", "nothing=1", "due_max"])
def test_what_is_no_setting_or_no_number_is_refused_by_name(assignment: str) -> None:
    with pytest.raises(InvalidDefinition, match=assignment.split("=", maxsplit=1)[0]):
        scheduler_settings({}, [assignment])
