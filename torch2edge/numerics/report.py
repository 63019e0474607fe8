"""The parity report: one record per runtime, case and output, and one verdict."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

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
        """Nothing failed, and at least one runtime ran."""
        ran = [r for r in self.runtimes if r.status != "not run"]
        return bool(ran) and all(r.status == "passed" for r in ran)

    @property
    def departs(self) -> str | None:
        """The first stage that departs, or None."""
        return next((r.stage for r in self.runtimes if r.status == "failed"), None)

    @property
    def outputs(self) -> dict[str, list[OutputRecord]]:
        """Output name -> its records."""
        grouped: dict[str, list[OutputRecord]] = {}
        for record in self.records:
            grouped.setdefault(record.output, []).append(record)
        return grouped

    def worst(self) -> dict[tuple[str, str], OutputRecord]:
        """(runtime, output) -> the record nearest to, or furthest beyond, its limit."""
        found: dict[tuple[str, str], OutputRecord] = {}
        for record in self.records:
            key = record.runtime, record.output
            if key not in found or _badness(record) > _badness(found[key]):
                found[key] = record
        return found

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready; infinities are the strings "inf" and "-inf"."""
        return {
            "target": self.target,
            "passed": self.passed,
            "departs": self.departs,
            "runtimes": [dataclasses.asdict(r) for r in self.runtimes],
            "records": [{k: _plain(v) for k, v in dataclasses.asdict(r).items()} for r in self.records],
            "notes": list(self.notes),
            "versions": self.versions,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Report:
        """The inverse of as_dict."""
        texts = {"runtime", "case", "output", "reason"}
        records = [
            OutputRecord(**{k: v if k in texts else _number(v) for k, v in record.items()}) for record in data["records"]
        ]
        runtimes = tuple(RuntimeRecord(**r) for r in data["runtimes"])
        return cls(data["target"], runtimes, tuple(records), tuple(data["notes"]), data["versions"])

    def to_json(self, path: str | os.PathLike[str]) -> None:
        """Write as JSON, atomically."""
        _write(Path(path), json.dumps(self.as_dict(), indent=1, allow_nan=False).encode())

    def to_junit(self, path: str | os.PathLike[str]) -> None:
        """Write as JUnit XML, atomically: a test case for each runtime, case and output."""
        suite = ElementTree.Element("testsuite", name=f"torch2edge parity {self.target}")
        for record in self.records:
            case = ElementTree.SubElement(
                suite, "testcase", classname=record.runtime, name=f"{record.case}.{record.output}"
            )
            if not record.passed:
                ElementTree.SubElement(case, "failure", message=record.reason)
        for runtime in self.runtimes:
            if any(r.runtime == runtime.runtime for r in self.records) and not runtime.why:
                continue
            case = ElementTree.SubElement(suite, "testcase", classname=runtime.runtime, name="run")
            if runtime.status == "not run":
                ElementTree.SubElement(case, "skipped", message=f"not run: {runtime.why}")
            elif runtime.status == "failed":
                ElementTree.SubElement(case, "failure", message=runtime.why or "nothing was compared")
        for name in ("failure", "skipped"):
            suite.set({"failure": "failures"}.get(name, name), str(len(suite.findall(f".//{name}"))))
        suite.set("tests", str(len(suite)))
        _write(Path(path), ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True))


def _badness(record: OutputRecord) -> tuple[bool, float]:
    if record.max_abs is None or record.limit is None:
        return not record.passed, math.inf
    if record.limit == 0:
        return not record.passed, math.inf if record.max_abs else 0.0
    return not record.passed, record.max_abs / record.limit


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, str) else value


def _write(path: Path, data: bytes) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}.partial")
    part.write_bytes(data)
    os.replace(part, path)


def joined(reports: list[Report]) -> Report:
    """One report of several bundles: runtimes that serve two targets are told apart by the target's name."""
    if len(reports) == 1:
        return reports[0]
    names = [r.runtime for report in reports for r in report.runtimes]
    twice = {n for n in names if names.count(n) > 1}

    def label(name: str, index: int) -> str:
        return f"{name} ({reports[index].target})" if name in twice else name

    return Report(
        target=", ".join(dict.fromkeys(r.target for r in reports)),
        runtimes=tuple(
            dataclasses.replace(x, runtime=label(x.runtime, i)) for i, r in enumerate(reports) for x in r.runtimes
        ),
        records=tuple(
            dataclasses.replace(x, runtime=label(x.runtime, i)) for i, r in enumerate(reports) for x in r.records
        ),
        notes=tuple(dict.fromkeys(n for r in reports for n in r.notes)),
        versions={k: v for r in reports for k, v in r.versions.items()},
    )
