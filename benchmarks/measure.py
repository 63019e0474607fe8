"""Wall time and peak memory of a command with all the processes that it starts (Linux)."""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SAMPLES_PER_SECOND = 20


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a command.

    Attributes:
        seconds: wall time.
        peak: bytes; largest sum of PSS over the process tree among the samples, 0 where it was not watched.
    """

    seconds: float
    peak: int = 0


def run(command: Sequence[str], *, watch: bool = True) -> Run:
    """Run a command to its end.

    Args:
        command: program and arguments.
        watch: sample the memory; off for commands that end within a few samples.

    Raises:
        RuntimeError: the command failed; its last lines are in the message.
    """
    stop, peak = threading.Event(), [0]
    with tempfile.TemporaryFile() as log:
        began = time.perf_counter()
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

        def sample() -> None:
            while not stop.wait(1 / SAMPLES_PER_SECOND):
                peak[0] = max(peak[0], sum(_pss(pid) for pid in tree(process.pid)))

        watcher = threading.Thread(target=sample)
        if watch:
            watcher.start()
        try:
            code = process.wait()
            seconds = time.perf_counter() - began
        finally:
            stop.set()
            if watch:
                watcher.join()
        if code:
            log.seek(0)
            tail = log.read().decode(errors="replace").strip().splitlines()[-15:]
            raise RuntimeError("\n".join([f"{' '.join(command)} ended with {code}", *tail]))
    return Run(seconds, peak[0])


def tree(root: int) -> list[int]:
    """The process and everything that it started, directly or not, among what runs now."""
    parents: dict[int, list[int]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                stat = Path(entry.path, "stat").read_text()
            except OSError:  # it ended meanwhile
                continue
            # The name, in brackets, may hold anything: the fields start after the last bracket.
            parents.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry.name))
    found, waiting = [], [root]
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        waiting += parents.get(pid, [])
    return found


def _pss(pid: int) -> int:
    """Bytes of a process, pages that it shares counted in proportion, so that a sum counts each page once."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Pss:")), 0)
