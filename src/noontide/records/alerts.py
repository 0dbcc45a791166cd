"""Records of `alerts`: what somebody should know. One per alert; its id tells a repetition."""

from __future__ import annotations

from collections.abc import Sequence

import orjson


def encode_alert(
    kind: str, run_id: str, *, job_id: str, tenant: str, at_ms: int, to: Sequence[str] = (), **fields: object
) -> bytes:
    """JSON of an alert about a run. to: channels that are told; fields: such as reason and streak, None is left out."""
    return orjson.dumps(
        {
            "alert_id": f"{kind}:{run_id}",
            "kind": kind,
            "job_id": job_id,
            "tenant": tenant,
            "run_id": run_id,
            "at": at_ms,
            **{name: value for name, value in fields.items() if value is not None},
            **({"to": list(to)} if to else {}),
        }
    )
