"""The report as JUnit XML, which CI systems show: never without a failure when the report did not pass."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree

if TYPE_CHECKING:
    from torch2edge.numerics.report import Report

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""All that XML 1.0 cannot hold, escaped or not: https://www.w3.org/TR/xml/#charsets (seen 2026)."""


def document(report: Report) -> bytes:
    """The XML: a test case for each record, and one for each runtime that records alone do not explain."""
    suite = ElementTree.Element("testsuite", name=_clean(f"torch2edge parity {report.target}"))

    def case(classname: str, name: str, outcome: str = "", message: str = "") -> None:
        made = ElementTree.SubElement(suite, "testcase", classname=_clean(classname), name=_clean(name))
        if outcome:
            ElementTree.SubElement(made, outcome, message=_clean(message))

    for record in report.records:
        outcome = "" if record.passed else "failure"
        case(record.runtime, f"{record.case}.{record.output}", outcome, record.reason)
    for runtime in report.runtimes:
        fault = report.fault(runtime)
        shown = any(not r.passed for r in report.of(runtime))
        if runtime.status == "not run":
            case(runtime.runtime, "run", "skipped", f"not run: {runtime.why}")
        elif fault and (runtime.why or not shown):
            case(runtime.runtime, "run", "failure", runtime.why or fault)
    if not report.passed and suite.find(".//failure") is None:
        case("torch2edge", "verdict", "failure", "nothing ran, so nothing is proven")
    suite.set("tests", str(len(suite)))
    suite.set("failures", str(len(suite.findall(".//failure"))))
    suite.set("skipped", str(len(suite.findall(".//skipped"))))
    suite.set("errors", "0")
    written: bytes = ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True)
    return written


def _clean(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)
