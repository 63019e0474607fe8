"""Worker processes: each way to die or to hang becomes one typed error, and leaves no process behind."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from torch2edge import errors
from torch2edge.workers import Worker

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def deadly() -> Iterator[Worker]:
    with Worker("tests.services.deadly", stage="conversion", time_limit=60) as worker:
        yield worker


def _runs(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _wait(condition: Callable[[], bool], seconds: float = 15.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


def _gone(*pids: int) -> bool:
    assert pids
    return _wait(lambda: not any(map(_runs, pids)))


def _pids(path: Path) -> list[int]:
    """Worker and grandchild, once the service has written them; both must run then."""
    assert _wait(lambda: path.exists() and len(path.read_text().split()) == 2, 30), (
        "the service never started"
    )
    found = [int(p) for p in path.read_text().split()]
    assert all(map(_runs, found))
    return found


# ---------------------------------------------------------------- deaths


@pytest.mark.parametrize(
    ("op", "body", "got"),
    [
        ("signal", {"number": signal.SIGSEGV}, "signal SIGSEGV"),
        ("signal", {"number": signal.SIGKILL}, "signal SIGKILL"),
        ("signal", {"number": signal.SIGRTMIN + 3}, f"signal {signal.SIGRTMIN + 3}"),
        ("segfault", {}, "signal SIGSEGV"),
        ("abort", {}, "signal SIGABRT"),
        ("exit", {"code": 3}, "exit code 3"),
        ("exit", {"code": 0}, "exit code 0"),
        ("leave", {"code": 4}, "exit code 4"),
    ],
)
def test_a_death_names_the_signal_or_the_exit_code(deadly: Worker, op: str, body: Any, got: str) -> None:
    with pytest.raises(errors.WorkerCrashed) as caught:
        deadly.call(op, body)
    assert caught.value.got == got
    assert caught.value.where == "conversion"
    with pytest.raises(errors.WorkerCrashed) as again:
        deadly.call("exit", {"code": 9})
    assert again.value.got == got


def test_the_log_of_a_death_is_kept(deadly: Worker) -> None:
    with pytest.raises(errors.WorkerCrashed) as caught:
        deadly.call("signal", {"number": signal.SIGSEGV})
    assert "about to die" in caught.value.log
    assert "Fatal Python error: Segmentation fault" in caught.value.log
    assert any("_signal" in line for line in caught.value.details)


@pytest.mark.parametrize("lock", [False, True])
def test_a_hang_ends_at_the_limit_with_its_children(deadly: Worker, tmp_path: Path, lock: bool) -> None:
    deadly.call("ready")
    began = time.monotonic()
    with pytest.raises(errors.WorkerTimeout, match="time limit of 3 s"):
        deadly.call("hang", {"pids": str(tmp_path / "pids"), "lock": lock}, time_limit=3)
    assert 3 <= time.monotonic() - began < 10
    assert _gone(*map(int, (tmp_path / "pids").read_text().split()))
    with pytest.raises(errors.WorkerTimeout):
        deadly.call("hang", {})


def test_children_of_a_worker_that_died_are_ended_too(deadly: Worker, tmp_path: Path) -> None:
    with pytest.raises(errors.WorkerCrashed):
        deadly.call("hang", {"pids": str(tmp_path / "pids"), "die": True})
    assert _gone(*map(int, (tmp_path / "pids").read_text().split()))


@pytest.mark.parametrize(
    "raw",
    [
        b"\xff" * 8,
        b"\x05" + b"\x00" * 7 + b"hello",
        b"\x02" + b"\x00" * 7 + b"[]",
        b"\x02" + b"\x00" * 7 + b"{}",
    ],
    ids=["a huge length", "no JSON", "no object", "no keys"],
)
def test_an_answer_that_is_no_frame_is_a_crash_at_once(deadly: Worker, raw: bytes) -> None:
    began = time.monotonic()
    with pytest.raises(errors.WorkerCrashed, match="died") as caught:
        deadly.call("garbage", {"hex": raw.hex()})
    assert "breaks the protocol" in caught.value.got
    assert time.monotonic() - began < 20


def test_a_worker_that_stops_answering_and_stays(deadly: Worker) -> None:
    with pytest.raises(errors.WorkerCrashed) as caught:
        deadly.call("mute")
    assert "no end of the process" in caught.value.got


def test_close_twice_and_a_call_after_it() -> None:
    worker = Worker("tests.services.echo", stage="echo", time_limit=60)
    pid = worker.call("facts")[0]["pid"]
    assert _runs(pid)
    worker.close()
    worker.close()
    assert _gone(pid)
    with pytest.raises(errors.WorkerCrashed, match="the worker was closed"):
        worker.call("echo")


def test_close_in_the_middle_of_another_threads_call(deadly: Worker, tmp_path: Path) -> None:
    caught: list[BaseException] = []

    def call() -> None:
        try:
            deadly.call("hang", {"pids": str(tmp_path / "pids")})
        except BaseException as error:
            caught.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    pids = _pids(tmp_path / "pids")
    deadly.close()
    thread.join(20)
    assert not thread.is_alive()
    assert [type(e) for e in caught] == [errors.WorkerCrashed]
    assert "was closed" in str(caught[0])
    assert _gone(*pids)


def test_a_forgotten_worker_ends() -> None:
    worker = Worker("tests.services.echo", stage="echo", time_limit=60)
    pid = worker.call("facts")[0]["pid"]
    del worker
    gc.collect()
    assert _gone(pid)


# ---------------------------------------------------------------- deaths of the host

HOST = """
    import os, sys, threading
    from torch2edge.workers import Worker
    worker = Worker("tests.services.deadly", stage="conversion", time_limit=120)
    worker.call("hang", {"pids": sys.argv[1], "lock": sys.argv[2] == "lock"})
"""


def _host(tmp_path: Path, lock: str = "") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(HOST), str(tmp_path / "pids"), lock],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_ctrl_c_in_the_middle_of_a_call_leaves_no_process(tmp_path: Path) -> None:
    with _host(tmp_path) as host:
        pids = _pids(tmp_path / "pids")
        host.send_signal(signal.SIGINT)
        _, said = host.communicate(timeout=30)
    assert host.returncode == -signal.SIGINT
    assert said.rstrip().endswith("KeyboardInterrupt")
    assert _gone(*pids)


@pytest.mark.parametrize("lock", ["", "lock"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_death_of_the_host_ends_the_worker_and_its_children(
    tmp_path: Path, lock: str, number: int
) -> None:
    with _host(tmp_path, lock) as host:
        pids = _pids(tmp_path / "pids")
        host.send_signal(number)
        host.communicate(timeout=30)
    assert host.returncode == -number
    assert _gone(*pids)


def test_a_host_that_ends_with_an_open_worker_leaves_none(tmp_path: Path) -> None:
    code = """
        from torch2edge.workers import Worker
        worker = Worker("tests.services.echo", stage="echo", time_limit=60)
        print(worker.call("facts")[0]["pid"])
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert _gone(int(done.stdout))


def test_a_fork_of_the_host_does_not_end_its_worker() -> None:
    code = """
        import os
        from torch2edge.workers import Worker
        worker = Worker("tests.services.echo", stage="echo", time_limit=60)
        worker.call("echo")
        child = os.fork()
        if child == 0:
            worker.close()
            os._exit(0)
        os.waitpid(child, 0)
        print(worker.call("echo", {"a": 1})[0])
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "{'a': 1}\n"), done.stderr
