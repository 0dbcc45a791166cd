"""A hook of MkDocs: the navigation, in the order of need. A page that is added is in it by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

SECTIONS = {
    "Tutorials": "tutorials",
    "How-to": "how-to",
    "Reference": "reference",
    "Explanation": "explanation",
    "Decisions": "decisions",
}


def on_config(config: Any) -> Any:
    """Name every page below docs/."""
    docs = Path(config["docs_dir"])
    nav: list[object] = [{"Promises": "index.md"}]
    for title, folder in SECTIONS.items():
        pages = sorted(path.relative_to(docs).as_posix() for path in (docs / folder).glob("*.md"))
        nav.append({title: sorted(pages, key=lambda page: not page.endswith("README.md"))})
    config["nav"] = [*nav, {"Changelog": "CHANGELOG.md"}]
    return config
