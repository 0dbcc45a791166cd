"""Handlers to start from. Put jobs for them, and run them:

noontide jobs put workers.yaml
noontide worker noontide.examples.handlers
"""

from __future__ import annotations

import asyncio

from noontide import worker

app = worker.App()


@app.handler("thumbnail")
async def thumbnail(payload: dict[str, str]) -> dict[str, str]:
    """Plain `async` functions share an event loop: right for work that mostly waits. What is returned is the result."""
    await asyncio.sleep(0.2)
    return {"thumbnail": f"{payload['image']}.small.webp"}


@app.handler("encode-video")
def encode_video(payload: dict[str, int], ctx: worker.Context) -> dict[str, int]:
    """Plain functions run on threads. Long ones say how far they are, and stop when they are asked to."""
    frames = payload["frames"]
    for frame in range(frames):
        ctx.progress(frame / frames, f"frame {frame}")
        if ctx.wait_cancelled(0.1):
            raise worker.Cancelled(f"stopped at frame {frame}")
    return {"frames": frames}


@app.handler("sync-partner")
def sync_partner(payload: dict[str, str], ctx: worker.Context) -> dict[str, object]:
    """A partner who is often down: whatever a handler raises is tried again, by the `retry` of its job.

    `worker.PermanentError` ends a run at once, `worker.RetryLater` says how long to wait.
    """
    if ctx.attempt == 1 and ctx.due.second % 2 == 0:
        raise ConnectionError(f"{payload['partner']} does not answer")
    return {"partner": payload["partner"], "attempt": ctx.attempt}
