"""The host's side of a worker process: native code may crash or hang there, and becomes a typed error here."""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from torch2edge import errors, frames
from torch2edge.stages import Arrays

ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    "LITERT_TORCH_SHOW_PROGRESS": "n",
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
}
"""No accelerator is looked for, and no library reports progress on its own."""

_alive: weakref.WeakSet[Worker] = weakref.WeakSet()


class Worker:
    """One worker process that serves calls one at a time.

    Args:
        service: dotted name of a module with OPS.
        stage: what it does, for messages.
        time_limit: seconds for each call, start-up included.
        env: added to the environment.
        python: the interpreter's command line.
    """

    def __init__(
        self,
        service: str,
        *,
        stage: str,
        time_limit: float = 600.0,
        env: Mapping[str, str] | None = None,
        python: Sequence[str] = (sys.executable,),
    ) -> None:
        self.stage, self.time_limit = stage, time_limit
        self._dead: errors.Torch2EdgeError | None = None
        self._log: IO[bytes] = tempfile.TemporaryFile()
        root = str(Path(__file__).resolve().parent.parent)
        path = os.pathsep.join(p for p in (root, os.environ.get("PYTHONPATH", "")) if p)
        self._process = subprocess.Popen(
            [*python, "-m", "torch2edge._worker_main", service],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, **ENVIRONMENT, "PYTHONPATH": path, **(env or {})},
            start_new_session=True,  # the terminal's Ctrl-C reaches the host only, which then ends the worker
            bufsize=0,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        os.set_blocking(self._process.stdin.fileno(), False)
        _alive.add(self)

    def call(
        self,
        op: str,
        body: Mapping[str, Any] | None = None,
        arrays: Arrays | None = None,
        *,
        time_limit: float | None = None,
    ) -> tuple[dict[str, Any], Arrays]:
        """One operation of the service.

        Raises:
            Torch2EdgeError: what the service raised, as the same class.
            ConversionError: any other exception of the service.
            WorkerCrashed: the process died; the signal is named.
            WorkerTimeout: the time limit passed; the process group was killed.
        """
        if self._dead is not None:
            raise self._dead
        limit = self.time_limit if time_limit is None else time_limit
        deadline = time.monotonic() + limit
        try:
            for part in frames.encode(op, body or {}, arrays or {}):
                self._write(part, deadline)
            kind, reply, results = frames.decode(lambda n: self._read(n, deadline))
        except (EOFError, BrokenPipeError, ConnectionResetError, ValueError) as error:
            raise self._crashed() from error
        except TimeoutError as error:
            self._kill()
            self._dead = errors.WorkerTimeout(
                f"{self.stage} was stopped at its time limit of {limit:g} s",
                where=self.stage,
                details=self._tail(),
                next_step="give a larger time_limit (--time-limit SECONDS), or a smaller model",
            )
            raise self._dead from error
        except BaseException:  # Ctrl-C in the middle of a frame: the protocol is out of step
            self._kill()
            raise
        if kind == "ok":
            return reply, results
        if kind == "error":
            raise _same(reply)
        message = reply["message"].strip().splitlines() or [""]
        raise errors.ConversionError(
            f"{self.stage} failed: {reply['type']}: {message[0][:400]}",
            where=self.stage,
            details=[line[:200] for line in message[1:8]],
            next_step="run with --debug for the worker's own log",
        )

    def _write(self, part: Any, deadline: float) -> None:
        assert self._process.stdin is not None
        view, fd = memoryview(part).cast("B"), self._process.stdin.fileno()
        while view:
            if not select.select([], [fd], [], max(0.0, deadline - time.monotonic()))[1]:
                raise TimeoutError
            with contextlib.suppress(BlockingIOError):
                view = view[os.write(fd, view) :]

    def _read(self, count: int, deadline: float) -> bytearray:
        assert self._process.stdout is not None
        data, fd = bytearray(count), self._process.stdout.fileno()
        view = memoryview(data)
        while view:
            if not select.select([fd], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError
            got = os.readv(fd, [view])
            if not got:
                raise EOFError
            view = view[got:]
        return data

    def _crashed(self) -> errors.WorkerCrashed:
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._kill()
            code = self._process.returncode
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        self._dead = errors.WorkerCrashed(
            f"{self.stage} died in its worker process",
            where=self.stage,
            got=how,
            details=self._tail(),
            next_step="the lines above are the last that it wrote; nothing already on disk was changed",
        )
        return self._dead

    def _tail(self) -> list[str]:
        with contextlib.suppress(OSError, ValueError):
            self._log.seek(0)
            text = self._log.read().decode(errors="replace")
            return [line[:200] for line in text.splitlines() if line.strip()][-20:]
        return []

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=10)

    def close(self) -> None:
        """End the process; a second call does nothing."""
        if self._process.poll() is None:
            self._kill()
        for pipe in (self._process.stdin, self._process.stdout, self._log):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        if self._dead is None:
            self._dead = errors.WorkerCrashed(f"{self.stage}: the worker was closed", where=self.stage)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_process"):
            self.close()


@atexit.register
def _end_all() -> None:
    for worker in list(_alive):
        worker.close()


def _same(reply: dict[str, Any]) -> errors.Torch2EdgeError:
    kind = getattr(errors, reply["kind"], errors.ConversionError)
    error: errors.Torch2EdgeError = kind(
        reply["what"],
        where=reply["where"],
        expected=reply["expected"],
        got=reply["got"],
        next_step=reply["next"],
        details=reply["details"],
    )
    return error
