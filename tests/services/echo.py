"""Returns what it is given, raises what it is asked for, prints where it should not."""

from __future__ import annotations

import os
import sys
from typing import Any

from torch2edge import errors

Answer = tuple[dict[str, Any], dict[str, Any]]


def _echo(body: dict[str, Any], arrays: dict[str, Any]) -> Answer:
    return body, arrays


def _raise(body: dict[str, Any], arrays: dict[str, Any]) -> Answer:
    fields = dict(body)
    raise getattr(errors, fields.pop("kind"))(fields.pop("what"), **fields)


def _fault(body: dict[str, Any], arrays: dict[str, Any]) -> Answer:
    print("a line before the fault", file=sys.stderr, flush=True)
    raise OverflowError(body["message"])


def _foreign(body: dict[str, Any], arrays: dict[str, Any]) -> Answer:
    class HomeMade(errors.Torch2EdgeError):
        """Unknown to the host."""

    raise HomeMade("home made", where="here")


def _print(body: dict[str, Any], arrays: dict[str, Any]) -> Answer:
    print("printed by Python", flush=True)
    os.write(1, b"written by native code\n" * 1000)
    sys.__stdout__.write("to the first stdout\n")  # type: ignore[union-attr]
    return body, arrays


def _no_json(body: dict[str, Any], arrays: dict[str, Any]) -> Answer:
    return {"value": object()}, {}


def _facts(body: dict[str, Any], arrays: dict[str, Any]) -> Answer:
    import random

    return {"pid": os.getpid(), "random": random.__file__, "cwd": os.getcwd()}, {}


def _writable(body: dict[str, Any], arrays: dict[str, Any]) -> Answer:
    for array in arrays.values():
        array += 1
    return {}, arrays


OPS = {
    "echo": _echo,
    "raise": _raise,
    "fault": _fault,
    "foreign": _foreign,
    "print": _print,
    "no json": _no_json,
    "facts": _facts,
    "writable": _writable,
}
