"""Every error that torch2edge raises on purpose.

One shape for all: what went wrong, where, what was expected, what was found, and the next step.  Several
findings of one kind are listed in one error, never one at a time.  `exit_code` is what the command line
answers: 1 a parity or device check failed, 2 a bad input (a model that a target cannot take included),
3 a missing optional part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar


class Torch2EdgeError(Exception):
    """The root of every error raised on purpose.

    Args:
        what: one sentence, without a full stop.
        where: path, node, input or stage.
        expected: what would have been right.
        got: what was found.
        next_step: what the user can do now.
        details: further findings, a line each (all blockers, all mismatches).

    Attributes:
        log: what a worker process wrote on its standard error, whole; "" where no worker took part.
    """

    exit_code: ClassVar[int] = 2
    log: str = ""

    def __init__(
        self,
        what: str,
        *,
        where: str = "",
        expected: str = "",
        got: str = "",
        next_step: str = "",
        details: Sequence[str] = (),
    ) -> None:
        self.what, self.where, self.expected, self.got = what, where, expected, got
        self.next_step, self.details = next_step, tuple(details)
        super().__init__(what)

    def __str__(self) -> str:
        lines = [self.what]
        lines += [f"  - {line}" for line in self.details]
        fields = (
            ("where", self.where),
            ("expected", self.expected),
            ("got", self.got),
            ("next", self.next_step),
        )
        lines += [f"  {label}: {text}" for label, text in fields if text]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """The same as a JSON object, `kind` being the class name."""
        return {
            "kind": type(self).__name__,
            "what": self.what,
            "where": self.where,
            "expected": self.expected,
            "got": self.got,
            "next": self.next_step,
            "details": list(self.details),
        }


class UsageError(Torch2EdgeError):
    """A command or call that makes no sense as given (unknown name, conflicting options)."""


class SourceError(Torch2EdgeError):
    """MODEL could not be found, loaded or made."""


class WeightsError(SourceError):
    """A state dict that does not fit the module, or that is not safe to read."""


class InputError(Torch2EdgeError):
    """Inputs that do not fit the model: number, name, shape, dtype, device or range."""


class CaptureError(Torch2EdgeError):
    """torch.export could not capture the module."""


class UnsupportedError(Torch2EdgeError):
    """The target cannot take parts of the model; all of them are listed."""


class ConversionError(Torch2EdgeError):
    """A converter or compiler refused or garbled the program."""


class WorkerCrashed(Torch2EdgeError):
    """Native code died in a worker process (signal or exit code in `got`)."""


class WorkerTimeout(Torch2EdgeError):
    """A worker process was stopped at its time limit."""


class BundleError(Torch2EdgeError):
    """A bundle that is corrupted, incomplete or unsafe."""


class BundleVersionError(BundleError):
    """A bundle of a newer format version."""


class OutputError(Torch2EdgeError):
    """The output folder exists, or could not be written; nothing on disk was changed."""


class ParityError(Torch2EdgeError):
    """What came out does not compute what went in.  `report` and `bundle` hold the evidence."""

    exit_code = 1

    def __init__(self, what: str, *, report: Any = None, bundle: Any = None, **fields: Any) -> None:
        super().__init__(what, **fields)
        self.report, self.bundle = report, bundle


class MissingPartError(Torch2EdgeError):
    """An optional part is not installed; the message names the one command that brings it."""

    exit_code = 3
