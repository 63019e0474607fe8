"""The parity report: one record per runtime, case and output, and one verdict."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from torch2edge.stages import OutputRecord, RuntimeRecord


@dataclass(frozen=True, slots=True)
class Report:
    """What parity found.

    Attributes:
        target: of the bundle.
        runtimes: in the order of the pipeline, from the module to the device.
        records: one per runtime, case and output.
        notes: what a reader should know (cases left out, an assumed floor).
        versions: tool -> version.
    """

    target: str
    runtimes: tuple[RuntimeRecord, ...]
    records: tuple[OutputRecord, ...]
    notes: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """At least one runtime ran, and each that ran compared something and failed nothing."""
        ran = [r for r in self.runtimes if r.status != "not run"]
        return bool(ran) and not any(self.fault(r) for r in ran) and all(r.passed for r in self.records)

    @property
    def departs(self) -> str | None:
        """The first stage that departs, or None."""
        return next((r.stage for r in self.runtimes if self.fault(r)), None)

    @property
    def outputs(self) -> dict[str, list[OutputRecord]]:
        """Output name -> its records."""
        grouped: dict[str, list[OutputRecord]] = {}
        for record in self.records:
            grouped.setdefault(record.output, []).append(record)
        return grouped

    def of(self, runtime: RuntimeRecord) -> list[OutputRecord]:
        """The records of one runtime."""
        return [r for r in self.records if r.runtime == runtime.runtime]

    def fault(self, runtime: RuntimeRecord) -> str:
        """Why a runtime did not pass; "" when it did, or did not run.

        A status of "passed" is not taken on trust: it needs records, and none of them failed.
        """
        mine = self.of(runtime)
        failed = sum(not r.passed for r in mine)
        if failed:
            return f"{failed} of {len(mine)} comparisons failed"
        if runtime.status == "failed":
            return runtime.why or "failed without a reason"
        return "nothing was compared" if runtime.status == "passed" and not mine else ""

    def worst(self) -> dict[tuple[str, str], OutputRecord]:
        """(runtime, output) -> the record nearest to, or furthest beyond, its limit."""
        found: dict[tuple[str, str], OutputRecord] = {}
        for record in self.records:
            key = record.runtime, record.output
            if key not in found or badness(record) > badness(found[key]):
                found[key] = record
        return found

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready; a number that is not finite is the string "inf", "-inf" or "nan"."""
        return {
            "target": self.target,
            "passed": self.passed,
            "departs": self.departs,
            "runtimes": [_plain(dataclasses.asdict(r)) for r in self.runtimes],
            "records": [_plain(dataclasses.asdict(r)) for r in self.records],
            "notes": list(self.notes),
            "versions": dict(self.versions),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Report:
        """The inverse of as_dict; the verdict is worked out again, not read."""
        return cls(
            data["target"],
            tuple(RuntimeRecord(**_numbers(r)) for r in data["runtimes"]),
            tuple(OutputRecord(**_numbers(r)) for r in data["records"]),
            tuple(data["notes"]),
            dict(data["versions"]),
        )

    def to_json(self, path: str | os.PathLike[str]) -> None:
        """Write as JSON, atomically."""
        _write(Path(path), json.dumps(self.as_dict(), indent=1, allow_nan=False).encode())

    def to_junit(self, path: str | os.PathLike[str]) -> None:
        """Write as JUnit XML, atomically: a test case for each runtime, case and output."""
        from torch2edge.numerics.junit import document

        _write(Path(path), document(self))


def badness(record: OutputRecord) -> tuple[bool, float]:
    """Orders records from best to worst: failed or not, then the distance as a share of its limit."""
    if record.max_abs is None or record.limit is None:
        return not record.passed, 0.0 if record.passed else math.inf
    if record.limit == 0:
        return not record.passed, math.inf if record.max_abs else 0.0
    return not record.passed, record.max_abs / record.limit


_TEXTS = {"runtime", "case", "output", "reason", "stage", "status", "why"}


def _plain(record: dict[str, Any]) -> dict[str, Any]:
    return {k: str(v) if isinstance(v, float) and not math.isfinite(v) else v for k, v in record.items()}


def _numbers(record: dict[str, Any]) -> dict[str, Any]:
    return {k: float(v) if isinstance(v, str) and k not in _TEXTS else v for k, v in record.items()}


def _write(path: Path, data: bytes) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        part.write_bytes(data)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


Item = TypeVar("Item", OutputRecord, RuntimeRecord)


def joined(reports: list[Report]) -> Report:
    """One report of several bundles.

    Runtimes that serve several bundles are told apart by the bundle's target, and by its number among the
    reports where two bundles have one target: "litert-cpu (litert)", "litert-cpu (litert 2)".
    """
    if len(reports) == 1:
        return reports[0]
    targets = [r.target for r in reports]
    marks = [f"{t} {targets[: i + 1].count(t)}" if targets.count(t) > 1 else t for i, t in enumerate(targets)]
    served: dict[str, set[int]] = {}
    for index, report in enumerate(reports):
        for name in [r.runtime for r in report.runtimes] + [r.runtime for r in report.records]:
            served.setdefault(name, set()).add(index)

    def relabelled(item: Item, index: int) -> Item:
        shared = len(served[item.runtime]) > 1
        return dataclasses.replace(item, runtime=f"{item.runtime} ({marks[index]})") if shared else item

    return Report(
        target=", ".join(dict.fromkeys(targets)),
        runtimes=tuple(relabelled(x, i) for i, r in enumerate(reports) for x in r.runtimes),
        records=tuple(relabelled(x, i) for i, r in enumerate(reports) for x in r.records),
        notes=tuple(dict.fromkeys(n for r in reports for n in r.notes)),
        versions={k: v for r in reports for k, v in r.versions.items()},
    )
