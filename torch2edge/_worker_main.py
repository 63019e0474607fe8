"""The child's side: `python -m torch2edge._worker_main SERVICE`.

A service is a module with OPS: name -> function(body, arrays) -> (body, arrays).
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import importlib
import os
import signal
import sys
from typing import Any

from torch2edge import frames
from torch2edge.errors import Torch2EdgeError


def main() -> int:
    """Serve until standard input closes."""
    with contextlib.suppress(OSError, AttributeError):  # Linux only: die with the parent
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    faulthandler.enable()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever native code prints must not break the protocol
    sys.stdout = sys.stderr
    requests = sys.stdin.buffer

    def read(count: int) -> bytes:
        data = requests.read(count)
        if len(data) != count:
            raise EOFError
        return data

    failure: BaseException | None = None
    ops: dict[str, Any] = {}
    try:
        ops = importlib.import_module(sys.argv[1]).OPS
    except Exception as error:
        failure = error
    while True:
        try:
            op, body, arrays = frames.decode(read)
        except EOFError:
            return 0
        try:
            if failure is not None:
                raise failure
            reply, results = ops[op](body, arrays)
            out = frames.encode("ok", reply, results)
        except Torch2EdgeError as error:
            out = frames.encode("error", error.to_json(), {})
        except Exception as error:
            import traceback

            traceback.print_exc()
            out = frames.encode("fault", {"type": type(error).__name__, "message": str(error)}, {})
        for part in out:
            answers.write(part)
        answers.flush()


if __name__ == "__main__":
    sys.exit(main())
