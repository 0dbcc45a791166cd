"""The shipped configurations of Kafka Connect, written from the topic files: `python -m noontide.apps.sinks FOLDER`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import orjson

from noontide.records.history import CONNECTOR_NAME, connector_config

PREFIX = "noontide."


def sink_files() -> dict[str, str]:
    """Contents by file name."""
    return {
        "executions-postgres.json": _connector(CONNECTOR_NAME, connector_config(PREFIX)),
        "executions-files.json": _connector(
            "noontide-executions-files",
            {
                "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
                "tasks.max": "1",
                "topics": f"{PREFIX}executions",
                "file": "${env:NOONTIDE_HISTORY_FILE}",
                "key.converter": "org.apache.kafka.connect.storage.StringConverter",
                "value.converter": "org.apache.kafka.connect.storage.StringConverter",
                "consumer.override.isolation.level": "read_committed",
                "consumer.override.auto.offset.reset": "earliest",
            },
        ),
    }


def _connector(name: str, config: Mapping[str, str]) -> str:
    return orjson.dumps({"name": name, "config": config}, option=orjson.OPT_INDENT_2).decode() + "\n"


def write_sinks(folder: Path) -> None:
    """Write all files into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in sink_files().items():
        (folder / name).write_text(text, "utf-8")


if __name__ == "__main__":
    import sys

    write_sinks(Path(sys.argv[1]))
