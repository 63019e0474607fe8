"""The child's side: `python -m torch2edge._worker_main SERVICE`.

A service is a module with OPS: name -> function(body, arrays) -> (body, arrays).
"""

from __future__ import annotations

import faulthandler
import importlib
import os
import select
import signal
import sys
from typing import Any

from torch2edge import frames
from torch2edge.errors import MissingPartError, Torch2EdgeError


def main() -> int:
    """Serve until standard input closes."""
    _guard()
    faulthandler.enable()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever native code prints must not break the protocol
    sys.stdout = sys.stderr
    requests = open(0, "rb", closefd=False)  # noqa: SIM115 - read until the end of the process

    def read(count: int) -> bytearray:
        data = bytearray(count)
        view = memoryview(data)
        while view:
            got = requests.readinto(view)
            if not got:
                raise EOFError
            view = view[got:]
        return data

    failure: Exception | None = None
    ops: dict[str, Any] = {}
    try:
        ops = importlib.import_module(sys.argv[1]).OPS
    except ModuleNotFoundError as error:
        failure = MissingPartError(
            f"{error.name} is not installed, or lacks a part",
            where=sys.argv[1],
            got=str(error),
            next_step="`torch2edge doctor` names the one command that mends it",
        )
    except Exception as error:
        failure = error
    while True:
        try:
            op, body, arrays = frames.decode(read)
        except EOFError:
            return 0
        for part in _answer(ops, failure, op, body, arrays):
            answers.write(part)
        answers.flush()


def _answer(ops: dict[str, Any], failure: Exception | None, op: str, body: Any, arrays: Any) -> list[Any]:
    try:
        if failure is not None:
            raise failure
        if op not in ops:
            raise LookupError(f"the service has no operation {op!r}, only {', '.join(ops)}")
        reply, results = ops[op](body, arrays)
        return frames.encode("ok", reply, results)
    except Torch2EdgeError as error:
        return frames.encode("error", error.to_json(), {})
    except Exception as error:
        import traceback

        traceback.print_exc()
        return frames.encode("fault", {"type": type(error).__name__, "message": str(error)}, {})


def _guard() -> None:
    """A small process that ends this one's whole group when the host is gone, or when this one died.

    Native code may hold the interpreter for minutes, so no thread in here can be trusted with it.  The
    kernel's own "die with the parent" (prctl) looks at the thread that started the worker, and would end
    a worker whose host goes on without that thread.
    """
    if os.getpgrp() != os.getpid():
        os.setsid()
    worker = os.getpid()
    if os.fork():
        return
    status = 1
    try:
        os.close(1)
        os.close(2)
        host = select.poll()
        host.register(0, 0)  # no event but the hang-up, which is always told
        while os.getppid() == worker and not host.poll(100):
            pass
        os.killpg(worker, signal.SIGKILL)  # its number is not taken anew: this process is of that group
    finally:
        os._exit(status)


if __name__ == "__main__":
    sys.exit(main())
