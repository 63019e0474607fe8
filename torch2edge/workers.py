"""The host's side of a worker process: native code may crash or hang there; here that is a typed error."""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
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

LOG_LIMIT = 16_000_000
"""Bytes of a worker's log that an error keeps, the newest."""

_alive: weakref.WeakSet[Worker] = weakref.WeakSet()


class Worker:
    """One worker process that serves calls one at a time, from any thread.

    Args:
        service: dotted name of a module with OPS.
        stage: what it does, for messages.
        time_limit: seconds for each call, start-up included.
        env: added to the environment.
        python: the interpreter's command line.

    Raises:
        WorkerCrashed: the interpreter could not be started.
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
        self._lock, self._closed, self._owner = threading.RLock(), False, os.getpid()
        try:
            self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the worker
            self._process = subprocess.Popen(
                # -P: a random.py in the user's folder must not stand in for the standard library's
                [*python, "-P", "-m", "torch2edge._worker_main", service],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                env={**os.environ, **ENVIRONMENT, "PYTHONPATH": _search_path(), **(env or {})},
                start_new_session=True,  # a terminal's Ctrl-C reaches the host only, which ends the worker
                bufsize=0,
            )
        except OSError as error:
            if hasattr(self, "_log"):
                self._log.close()
            raise errors.WorkerCrashed(
                f"the worker process for {stage} could not be started",
                where=stage,
                expected="a Python interpreter, and room in the folder for temporary files",
                got=str(error),
                next_step="`torch2edge doctor` looks at this machine",
            ) from error
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
            MissingPartError: the service needs a package that is not installed.
            ConversionError: any other exception of the service.
            WorkerCrashed: the process died (the signal is named), broke the protocol, or was closed.
            WorkerTimeout: the time limit passed; the process group was killed.
            InputError: body or arrays that cannot pass to another process; the worker goes on.
        """
        try:
            parts = frames.encode(op, body or {}, arrays or {})
        except frames.FrameError as error:
            raise errors.InputError(
                f"{self.stage} cannot be given these values: {error}",
                where=self.stage,
                expected="arrays of numbers, and a body of JSON values",
                next_step="convert them before the call",
            ) from error
        with self._lock:
            if self._dead is not None:
                raise self._dead
            limit = self.time_limit if time_limit is None else time_limit
            kind, reply, results = self._exchange(parts, limit)
            log = "" if kind == "ok" else self._read_log()
        if kind == "ok":
            return reply, results
        if kind == "error":
            error_ = _same(reply)
        else:
            message = reply["message"].strip().splitlines() or [""]
            error_ = errors.ConversionError(
                f"{self.stage} failed: {reply['type']}: {message[0][:400]}",
                where=self.stage,
                details=[line[:200] for line in message[1:8]],
                next_step="run with --debug for the worker's own log",
            )
        error_.log = log
        raise error_

    def _exchange(self, parts: list[Any], limit: float) -> tuple[str, dict[str, Any], Arrays]:
        deadline = time.monotonic() + limit
        try:
            for part in parts:
                self._write(part, deadline)
            return frames.decode(lambda n: self._read(n, deadline))
        except (EOFError, BrokenPipeError, ConnectionResetError) as error:
            raise self._crashed() from error
        except (frames.FrameError, MemoryError) as error:
            self._kill()
            raise self._died(f"an answer that breaks the protocol: {error}") from error
        except TimeoutError as error:
            self._kill()
            log = self._read_log()
            self._dead = errors.WorkerTimeout(
                f"{self.stage} was stopped at its time limit of {limit:g} s",
                where=self.stage,
                details=_tail(log),
                next_step="give a larger time_limit (--time-limit SECONDS), or a smaller model",
            )
            self._dead.log = log
            raise self._dead from error
        except BaseException:  # Ctrl-C in the middle of a frame: the protocol is out of step
            self.close()
            raise

    def _write(self, part: Any, deadline: float) -> None:
        assert self._process.stdin is not None
        view, fd = memoryview(part).cast("B"), self._process.stdin.fileno()
        while view:
            _wait(fd, select.POLLOUT, deadline)
            with contextlib.suppress(BlockingIOError):
                view = view[os.write(fd, view) :]

    def _read(self, count: int, deadline: float) -> bytearray:
        assert self._process.stdout is not None
        data, fd = bytearray(count), self._process.stdout.fileno()
        view = memoryview(data)
        while view:
            _wait(fd, select.POLLIN, deadline)
            got = os.readv(fd, [view])
            if not got:
                raise EOFError
            view = view[got:]
        return data

    def _crashed(self) -> errors.Torch2EdgeError:
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._kill()
            return self._died("an end of its answers, and no end of the process")
        return self._died(f"signal {_signal(-code)}" if code < 0 else f"exit code {code}")

    def _died(self, how: str) -> errors.Torch2EdgeError:
        if self._closed:
            self._dead = self._closed_error()
            return self._dead
        log = self._read_log()
        self._dead = errors.WorkerCrashed(
            f"{self.stage} died in its worker process",
            where=self.stage,
            got=how,
            details=_tail(log),
            next_step="the lines above are the last that it wrote; nothing already on disk was changed",
        )
        self._dead.log = log
        return self._dead

    def _closed_error(self) -> errors.Torch2EdgeError:
        return errors.WorkerCrashed(
            f"{self.stage}: the worker was closed",
            where=self.stage,
            next_step="open a new one (load the bundle again)",
        )

    def _read_log(self) -> str:
        """The worker's standard error; by pread, since the worker writes at the same file position."""
        with contextlib.suppress(OSError, ValueError):
            fd = self._log.fileno()
            size = os.fstat(fd).st_size
            start = max(0, size - LOG_LIMIT)
            return os.pread(fd, size - start, start).decode(errors="replace")
        return ""

    def _kill(self) -> None:
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=10)

    def close(self) -> None:
        """End the process, in the middle of another thread's call too; a second call does nothing."""
        self._closed = True
        if os.getpid() == self._owner:  # else a fork of the host, which has only copies of the pipes
            self._kill()
        # The pipes close only when no thread waits at them: their numbers may be used anew at once.
        free = self._lock.acquire(timeout=10)
        try:
            for pipe in (self._process.stdin, self._process.stdout, self._log) if free else ():
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()
            if self._dead is None:
                self._dead = self._closed_error()
        finally:
            if free:
                self._lock.release()

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_process"):
            self.close()


@atexit.register
def _end_all() -> None:
    for worker in list(_alive):
        worker.close()


def _wait(fd: int, event: int, deadline: float) -> None:
    """Until `fd` is ready or hung up; poll, since select cannot take a number from 1024 on."""
    poll = select.poll()
    poll.register(fd, event)
    while True:
        left = deadline - time.monotonic()
        if poll.poll(max(0.0, min(left, 3600.0)) * 1000):
            return
        if left <= 0:
            raise TimeoutError


def _search_path() -> str:
    """PYTHONPATH that finds this very package, and puts no site-packages before the standard library."""
    root = Path(__file__).resolve().parent.parent
    own = "" if root.name in ("site-packages", "dist-packages") else str(root)
    return os.pathsep.join(p for p in (own, os.environ.get("PYTHONPATH", "")) if p)


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return str(number)


def _tail(log: str) -> list[str]:
    return [line[:200] for line in log.splitlines() if line.strip()][-20:]


def _same(reply: dict[str, Any]) -> errors.Torch2EdgeError:
    kind: Any = getattr(errors, reply["kind"], None)
    if not (isinstance(kind, type) and issubclass(kind, errors.Torch2EdgeError)):
        kind = errors.ConversionError
    error: errors.Torch2EdgeError = kind(
        reply["what"],
        where=reply["where"],
        expected=reply["expected"],
        got=reply["got"],
        next_step=reply["next"],
        details=reply["details"],
    )
    return error
