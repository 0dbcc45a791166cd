"""Everything below tests/integration talks to a real broker and is marked so."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Mark what lies in this folder; the hook sees the items of the whole run."""
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.kafka)
