"""Ways to die or to hang, and to leave a child behind."""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

Answer = tuple[dict[str, Any], dict[str, Any]]


def _signal(body: dict[str, Any], arrays: dict[str, Any]) -> Answer:
    print("about to die", file=sys.stderr, flush=True)
    os.kill(os.getpid(), body["number"])
    time.sleep(60)
    return {}, {}


def _segfault(body: dict[str, Any], arrays: dict[str, Any]) -> Answer:
    ctypes.string_at(0)
    return {}, {}


def _abort(body: dict[str, Any], arrays: dict[str, Any]) -> Answer:
    os.abort()


def _exit(body: dict[str, Any], arrays: dict[str, Any]) -> Answer:
    os._exit(body["code"])


def _leave(body: dict[str, Any], arrays: dict[str, Any]) -> Answer:
    sys.exit(body["code"])


def _hang(body: dict[str, Any], arrays: dict[str, Any]) -> Answer:
    """Hang with a child, and with the interpreter's lock held when asked to, as native code may."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(body["pids"]).write_text(f"{os.getpid()} {child.pid}")
    if body.get("lock"):
        ctypes.PyDLL(None).sleep(600)
    if body.get("die"):
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(600)
    return {}, {}


def _is_pipe_to_write(number: int) -> bool:
    try:
        held = os.readlink(f"/proc/self/fd/{number}")
    except OSError:
        return False
    return held.startswith("pipe:") and fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY


def _garbage(body: dict[str, Any], arrays: dict[str, Any]) -> Answer:
    """Write something else than a frame where answers go."""
    for entry in Path("/proc/self/fd").iterdir():
        number = int(entry.name)
        if number > 2 and _is_pipe_to_write(number):
            os.write(number, bytes.fromhex(body["hex"]))
    time.sleep(600)
    return {}, {}


def _ready(body: dict[str, Any], arrays: dict[str, Any]) -> Answer:
    return {}, {}


def _mute(body: dict[str, Any], arrays: dict[str, Any]) -> Answer:
    """Close the way of the answers, and stay."""
    for entry in list(Path("/proc/self/fd").iterdir()):
        if int(entry.name) > 2 and _is_pipe_to_write(int(entry.name)):
            os.close(int(entry.name))
    time.sleep(600)
    return {}, {}


OPS = {
    "ready": _ready,
    "mute": _mute,
    "signal": _signal,
    "segfault": _segfault,
    "abort": _abort,
    "exit": _exit,
    "leave": _leave,
    "hang": _hang,
    "garbage": _garbage,
}
