"""Records of `results`: the accepted end of a run, for other services. A refused late completion never gets here."""

from __future__ import annotations

from collections.abc import Callable

import orjson

from noontide.core.instants import format_instant
from noontide.core.run import Run, RunState


def encode_result(
    run: Run, *, state: RunState, ended_ms: int, result: bytes = b"", error: str | None = None, truncated: bool = False
) -> bytes:
    """JSON of a result. result: JSON text of what the handler returned or the target answered; b"" = nothing."""
    fields: dict[str, object] = {
        "run_id": run.run_id,
        "job_id": run.job_id,
        "tenant": run.tenant,
        "due": format_instant(run.due_ms),
        "state": state,
        "attempt": run.attempt,
        "token": run.token,
        "ended_at": format_instant(ended_ms),
    }
    if result:
        fields["result"] = orjson.Fragment(result)
    if error is not None:
        fields["error"] = error
    if truncated:
        fields["truncated"] = True
    return orjson.dumps(fields)


def succeeded_of(run: Run, *, ended_ms: int) -> Callable[[bytes, bytes, bytes], bytes]:
    """As `encode_result`, for many runs that succeeded and are alike: a function of run id, job id and result."""
    model = encode_result(run._replace(run_id="", job_id=""), state=RunState.SUCCEEDED, ended_ms=ended_ms)
    rest = model.removeprefix(b'{"run_id":"","job_id":"')[:-1]

    def line(run_id: bytes, job_id: bytes, result: bytes) -> bytes:
        brought = result and b',"result":' + result
        return b'{"run_id":"%b","job_id":"%b%b%b}' % (run_id, job_id, rest, brought)

    return line
