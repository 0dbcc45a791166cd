"""Workers: register functions as handlers, and `noontide worker` runs them under leases.

    from noontide import worker

    app = worker.App()

    @app.handler("send_report")
    def send_report(payload: dict, ctx: worker.Context) -> dict:
        ...

How a worker process works inside: `desk` decides (a state machine without I/O), `stage` carries attempts out on threads
and on an event loop of their own, `runtime` moves messages between the desk, the stage and Kafka.
"""

from noontide.worker.app import App
from noontide.worker.context import Context
from noontide.worker.errors import Cancelled, PermanentError, RetryLater

__all__ = ["App", "Cancelled", "Context", "PermanentError", "RetryLater"]
