"""A session in a worker process: a crash or hang there becomes a typed error here."""

from __future__ import annotations

from typing import Any

from torch2edge.stages import Arrays
from torch2edge.workers import Worker


class RemoteSession:
    """Speaks to a service that knows the operations "open" and "invoke".

    Args:
        service: dotted module name.
        stage: for messages.
        options: body of the "open" call.
        outputs: names in the order to ask for.
        time_limit: seconds for each call.
    """

    def __init__(
        self, service: str, *, stage: str, options: dict[str, Any], outputs: list[str], time_limit: float
    ) -> None:
        self._worker = Worker(service, stage=stage, time_limit=time_limit)
        try:
            self._worker.call("open", {**options, "outputs": outputs})
        except BaseException:
            self._worker.close()
            raise

    def invoke(self, arrays: Arrays) -> Arrays:
        """Run once."""
        return self._worker.call("invoke", {}, arrays)[1]

    def close(self) -> None:
        """End the worker."""
        self._worker.close()
