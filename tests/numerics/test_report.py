"""The verdict cannot be had for nothing, and every form of the report tells the same story."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from torch2edge.numerics.report import Report, badness, joined
from torch2edge.stages import OutputRecord, RuntimeRecord

GOOD = OutputRecord("xla", "sample", "y", True, "", 1e-7, 1e-6, 1e-8, 1e-8, 140.0, 1.0, 1.0, 1e-6, 1e-7)
BAD = replace(GOOD, passed=False, reason="max_abs 1 > 1e-06", max_abs=1.0)
RAN = RuntimeRecord("xla", "lowering to StableHLO", "passed", "", 0.5)
ABSENT = RuntimeRecord("tpu", "TPU", "not run", "no TPU here")

VERDICTS: dict[str, tuple[Report, bool, str | None]] = {
    "all is well": (Report("cloud-tpu", (RAN,), (GOOD,)), True, None),
    "one runtime is absent": (Report("cloud-tpu", (RAN, ABSENT), (GOOD,)), True, None),
    "nothing at all": (Report("cloud-tpu", (), ()), False, None),
    "nothing ran": (Report("cloud-tpu", (ABSENT,), ()), False, None),
    "passed without records": (Report("cloud-tpu", (RAN,), ()), False, RAN.stage),
    "one of two has no records": (
        Report("cloud-tpu", (RAN, replace(RAN, runtime="eager", stage="capture")), (GOOD,)), False, "capture",
    ),
    "status passed, record failed": (Report("cloud-tpu", (RAN,), (GOOD, BAD)), False, RAN.stage),
    "status failed, records passed": (
        Report("cloud-tpu", (replace(RAN, status="failed", why="time limit"),), (GOOD,)), False, RAN.stage,
    ),
    "status failed without a reason": (
        Report("cloud-tpu", (replace(RAN, status="failed"),), (GOOD,)), False, RAN.stage,
    ),
    "a failed record of a runtime that is not listed": (
        Report("cloud-tpu", (RAN,), (GOOD, replace(BAD, runtime="other"))), False, None,
    ),
    "records without runtimes": (Report("cloud-tpu", (), (GOOD,)), False, None),
}  # fmt: skip


@pytest.mark.parametrize(("report", "passed", "departs"), VERDICTS.values(), ids=VERDICTS.keys())
def test_verdict(report: Report, passed: bool, departs: str | None, tmp_path: Path) -> None:
    assert report.passed is passed
    assert report.departs == departs
    report.to_json(tmp_path / "r.json")
    again = Report.from_dict(json.loads((tmp_path / "r.json").read_text()))
    assert again == report and again.passed is passed
    suite = junit(report, tmp_path)
    assert (suite.get("failures") == "0") is passed, "JUnit is green exactly when the report passed"


def test_a_verdict_in_the_file_is_not_taken_on_trust() -> None:
    data = Report("litert", (RAN,), (BAD,)).as_dict()
    data["passed"] = True
    assert not Report.from_dict(data).passed


def test_the_first_stage_that_departs_is_named() -> None:
    stages = ("capture", "lowering", "XNNPACK")
    runtimes = tuple(RuntimeRecord(s, s, "passed") for s in stages)
    records = tuple(replace(BAD if s != "capture" else GOOD, runtime=s) for s in stages)
    assert Report("litert", runtimes, records).departs == "lowering"
    assert Report("litert", runtimes, tuple(replace(GOOD, runtime=s) for s in stages)).departs is None


numbers = st.none() | st.floats(width=64)
texts = st.text(max_size=12)
records_ = st.builds(
    OutputRecord, texts, texts, texts, st.booleans(), texts,
    numbers, numbers, numbers, numbers, numbers, numbers, numbers, numbers, numbers,
)  # fmt: skip
runtimes_ = st.builds(
    RuntimeRecord,
    texts,
    texts,
    st.sampled_from(("passed", "failed", "not run")),
    texts,
    st.none() | st.floats(0, 1e9),
)
reports_ = st.builds(
    Report, texts, st.lists(runtimes_, max_size=4).map(tuple), st.lists(records_, max_size=4).map(tuple),
    st.lists(texts, max_size=2).map(tuple), st.dictionaries(texts, texts, max_size=2),
)  # fmt: skip


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(reports_)
def test_any_report_round_trips_through_json(tmp_path: Path, report: Report) -> None:
    report.to_json(tmp_path / "r.json")
    text = (tmp_path / "r.json").read_text()
    data = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    again = Report.from_dict(data)
    assert repr(again) == repr(report)  # repr: NaN is not equal to itself
    assert data["passed"] == report.passed == again.passed


def junit(report: Report, folder: Path) -> Any:
    report.to_junit(folder / "r.xml")
    return ElementTree.parse(folder / "r.xml").getroot()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(reports_)
def test_any_report_is_sound_junit(tmp_path: Path, report: Report) -> None:
    suite = junit(report, tmp_path)
    cases = suite.findall("testcase")
    assert int(suite.get("tests")) == len(cases) >= len(report.records)
    assert int(suite.get("failures")) == len(suite.findall("testcase/failure"))
    assert int(suite.get("skipped")) == len(suite.findall("testcase/skipped"))
    assert int(suite.get("skipped")) == sum(r.status == "not run" for r in report.runtimes)
    assert int(suite.get("failures")) >= sum(not r.passed for r in report.records)
    assert (suite.get("failures") == "0") is report.passed


def test_junit_says_what_happened(tmp_path: Path) -> None:
    crashed = RuntimeRecord("litert-cpu", "XNNPACK", "failed", "killed by signal 11")
    suite = junit(Report("litert", (RAN, crashed, ABSENT), (GOOD, replace(BAD, output="z"))), tmp_path)
    found = {
        (c.get("classname"), c.get("name")): next(((e.tag, e.get("message")) for e in c), None)
        for c in suite.findall("testcase")
    }
    assert found == {
        ("xla", "sample.y"): None,
        ("xla", "sample.z"): ("failure", "max_abs 1 > 1e-06"),
        ("litert-cpu", "run"): ("failure", "killed by signal 11"),
        ("tpu", "run"): ("skipped", "not run: no TPU here"),
    }
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("4", "2", "1")


def test_junit_replaces_what_xml_cannot_hold_and_keeps_the_rest(tmp_path: Path) -> None:
    nasty = 'a\x00b\x1b[31mc\x0bd\ufffe e\ud800f <&">\n\té 漢 😀'
    report = Report(
        nasty, (replace(RAN, runtime=nasty),), (replace(BAD, runtime=nasty, output=nasty, reason=nasty),)
    )
    suite = junit(report, tmp_path)
    clean = 'a\ufffdb\ufffd[31mc\ufffdd\ufffd e\ufffdf <&">\n\té 漢 😀'
    case = suite.find("testcase")
    assert case.get("classname") == clean and case.get("name") == f"sample.{clean}"
    assert case.find("failure").get("message") == clean
    with pytest.raises(ElementTree.ParseError):  # the control: the parser does refuse such characters
        ElementTree.fromstring("<a b='\x1b'/>")


def test_files_are_written_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "r.json"
    target.write_text("before")
    broken = Report("litert", (RAN,), (GOOD,), versions={"torch": object()})  # type: ignore[dict-item]
    with pytest.raises(TypeError):
        broken.to_json(target)
    assert target.read_text() == "before"
    Report("litert", (RAN,), (GOOD,)).to_json(target)
    assert json.loads(target.read_text())["passed"] is True
    assert [p.name for p in tmp_path.iterdir()] == ["r.json"]


def test_worst_is_the_record_nearest_to_its_limit() -> None:
    half = replace(GOOD, case="random", max_abs=5e-7)
    report = Report("litert", (RAN,), (GOOD, half, replace(GOOD, case="ramp")))
    assert report.worst() == {("xla", "y"): half}
    missing = replace(GOOD, case="zeros", passed=False, reason="missing", max_abs=None, limit=None)
    assert replace(report, records=(BAD, *report.records, missing)).worst() == {("xla", "y"): missing}
    infinite = replace(GOOD, case="infinite", max_abs=None, limit=None)  # passed, without numbers
    assert badness(infinite) < badness(half) < badness(BAD) < badness(missing)


def test_outputs_group_the_records() -> None:
    other = replace(GOOD, output="z")
    assert Report("litert", (RAN,), (GOOD, other, BAD)).outputs == {"y": [GOOD, BAD], "z": [other]}


def test_joined_reports_of_two_targets_are_told_apart() -> None:
    both = joined([Report("litert", (RAN,), (GOOD,)), Report("cloud-tpu", (RAN, ABSENT), (BAD,))])
    assert both.target == "litert, cloud-tpu"
    assert [r.runtime for r in both.runtimes] == ["xla (litert)", "xla (cloud-tpu)", "tpu"]
    assert [(r.runtime, r.passed) for r in both.records] == [
        ("xla (litert)", True),
        ("xla (cloud-tpu)", False),
    ]
    assert not both.passed and both.departs == RAN.stage


def test_joined_reports_of_one_target_are_told_apart_by_number() -> None:
    good, bad = Report("litert", (RAN,), (GOOD,)), Report("litert", (RAN,), (BAD,))
    three = joined([good, bad, Report("cloud-tpu", (RAN,), (GOOD,))])
    assert [r.runtime for r in three.runtimes] == ["xla (litert 1)", "xla (litert 2)", "xla (cloud-tpu)"]
    assert [three.of(r) for r in three.runtimes] == [
        [replace(GOOD, runtime="xla (litert 1)")],
        [replace(BAD, runtime="xla (litert 2)")],
        [replace(GOOD, runtime="xla (cloud-tpu)")],
    ]
    assert [bool(three.fault(r)) for r in three.runtimes] == [False, True, False]
    assert len(three.worst()) == 3


def test_a_bundle_without_records_cannot_borrow_those_of_another() -> None:
    both = joined([Report("litert", (RAN,), (GOOD,)), Report("litert", (RAN,), ())])
    assert not both.passed
    assert both.fault(both.runtimes[1]) == "nothing was compared"
    assert joined([Report("litert", (RAN,), (GOOD,)), Report("litert", (RAN,), (GOOD,))]).passed


def test_joining_labels_records_of_runtimes_that_no_report_lists() -> None:
    stray = replace(BAD, runtime="stray")
    both = joined([Report("litert", (RAN,), (GOOD, stray)), Report("litert", (RAN,), (GOOD, stray))])
    assert [r.runtime for r in both.records if not r.passed] == ["stray (litert 1)", "stray (litert 2)"]
    assert not both.passed


def test_joining_keeps_notes_versions_and_a_single_report() -> None:
    one = Report("litert", (RAN,), (GOOD,), ("a", "b"), {"torch": "1"})
    other = Report("litert", (RAN,), (GOOD,), ("b", "c"), {"jax": "2"})
    assert joined([one]) is one
    both = joined([one, other])
    assert both.notes == ("a", "b", "c") and both.versions == {"torch": "1", "jax": "2"}


def test_infinities_stand_in_the_json_as_words() -> None:
    data = Report("litert", (RAN,), (replace(GOOD, sqnr_db=math.inf, max_rel=-math.inf),)).as_dict()
    assert data["records"][0]["sqnr_db"] == "inf" and data["records"][0]["max_rel"] == "-inf"
    assert data["records"][0]["max_abs"] == 1e-7
