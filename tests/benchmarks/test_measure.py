"""The benchmark's own instrument: does it see time, memory, child processes and failure?"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

import bench_export
import measure

# Touches every page once: memory that was never written to is not counted.
HOLD = "import time; data = bytearray(200_000_000); data[::4096] = b'x' * len(data[::4096]); time.sleep(1)"
CHILD = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {HOLD!r}], start_new_session=True)"


@pytest.mark.parametrize("code", [HOLD, CHILD], ids=["own", "child in a session of its own"])
def test_memory_is_seen(code: str) -> None:
    found = measure.run([sys.executable, "-c", code])
    assert 200e6 < found.peak < 300e6
    assert found.seconds > 1


def test_less_memory_is_seen_as_less() -> None:
    assert 0 < measure.run([sys.executable, "-c", "import time; time.sleep(0.5)"]).peak < 100e6


def test_unwatched_runs_have_no_peak() -> None:
    assert measure.run([sys.executable, "-c", "pass"], watch=False).peak == 0


def test_a_command_that_fails_is_no_measurement() -> None:
    with pytest.raises(RuntimeError, match=r"(?s)ended with 3.*the reason"):
        measure.run([sys.executable, "-c", "print('the reason'); raise SystemExit(3)"])


def test_the_tree_holds_grandchildren_and_no_strangers() -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(30)'])"
    mine = subprocess.Popen([sys.executable, "-c", code])
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(30)"])
    try:
        deadline = time.monotonic() + 10
        while len(found := measure.tree(mine.pid)) < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert len(found) == 2 and found[0] == mine.pid
        assert stranger.pid not in found
    finally:
        for pid in measure.tree(mine.pid)[1:]:
            os.kill(pid, signal.SIGKILL)
        for process in (mine, stranger):
            process.kill()
            process.wait()


def test_a_table_shows_medians_and_ratios() -> None:
    fast = iter([measure.Run(1.0, 100_000_000), measure.Run(9.0, 300_000_000), measure.Run(2.0, 200_000_000)])
    slow = iter([measure.Run(4.0, 100_000_000)] * 3)
    lines = bench_export.table("T", [("A", lambda: next(fast)), ("B", lambda: next(slow))], 3)
    assert lines[4:6] == [
        "| A | 2.0 | 1.0, 9.0, 2.0 | 0.50 | 200 | 2.00 |",
        "| B | 4.0 | 4.0, 4.0, 4.0 | 1.00 | 100 | 1.00 |",
    ]
