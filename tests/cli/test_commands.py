"""The commands on a real model: what they print, write and answer, and what a stopped one leaves."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from torch2edge.cli import main

pytestmark = pytest.mark.real

SCRIPT = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, gain=1.0):
        super().__init__()
        torch.manual_seed(0)
        self.lin, self.gain = nn.Linear(4, 3), gain

    def forward(self, x):
        print("forward ran")
        return {"y": self.lin(x) * self.gain, "top": self.lin(x).argmax(-1)}

def net():
    print("the factory ran")
    return Net(), (torch.linspace(-1, 1, 8).reshape(2, 4),)

def other():
    return Net(2.0), (torch.linspace(-1, 1, 8).reshape(2, 4),)

def wrong():
    pool = nn.AvgPool2d(2, 2, ceil_mode=True)
    return pool, (torch.arange(9.0).view(1, 1, 3, 3),)

def large():
    return nn.Sequential(*[nn.Linear(1024, 1024) for _ in range(8)]), (torch.ones(1, 1024),)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("commands")
    (made / "net.py").write_text(SCRIPT)
    return made


@pytest.fixture(scope="module")
def bundles(folder: Path) -> Path:
    code = main(
        [
            "export",
            f"{folder}/net.py:net",
            "--target",
            "litert",
            "--target",
            "cloud-tpu",
            "-o",
            str(folder / "b"),
        ]
    )
    assert code == 0
    return folder / "b"


def outcome(capsys: pytest.CaptureFixture[str], *argv: Any) -> tuple[int, str, str]:
    code = main([str(a) for a in argv])
    out, err = capsys.readouterr()
    return code, out, err


def test_two_targets_give_two_bundles_and_one_common_table(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = outcome(
        capsys,
        "export",
        f"{folder}/net.py:net",
        "--target",
        "litert",
        "--target",
        "cloud-tpu",
        "-o",
        tmp_path / "b",
    )
    assert code == 0
    assert sorted(p.name for p in (tmp_path / "b").iterdir()) == ["cloud-tpu", "litert"]
    for runtime in ("xla", "litert-reference", "litert-cpu", "litert-cpu-noreuse", "eager"):
        assert runtime in out
    assert out.count("agree with eager PyTorch") == 1
    assert "passed" in out and "Traceback" not in err


def test_json_is_one_document_whatever_the_model_prints(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = outcome(
        capsys, "export", f"{folder}/net.py:net", "--target", "cloud-tpu", "-o", tmp_path / "b", "--json"
    )
    found = json.loads(out)
    assert code == 0 and found["cloud-tpu"]["report"]["passed"] is True
    assert "forward ran" in err and "the factory ran" in err


def test_parity_passes_and_writes_its_reports(
    bundles: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = outcome(
        capsys, "parity", bundles / "litert", bundles / "cloud-tpu",
        "--report", tmp_path / "r.json", "--junit", tmp_path / "r.xml",
    )  # fmt: skip
    assert code == 0 and "agree with eager PyTorch" in out
    assert json.loads((tmp_path / "r.json").read_text())["passed"] is True
    assert "<testcase" in (tmp_path / "r.xml").read_text()


def test_parity_with_another_module_as_reference_fails_with_1(
    bundles: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ("parity", bundles / "cloud-tpu", "--reference", f"{folder}/net.py:other")
    code, out, _ = outcome(capsys, *argv)
    assert code == 1 and "FAILED" in out and "first departure: capture by torch.export" in out
    code, out, _ = outcome(capsys, *argv[:-1], f"{folder}/net.py:net")
    assert code == 0


def test_parity_on_inputs_of_the_users_own(
    bundles: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "x.npy", np.full((2, 4), 0.25, np.float32))
    code, out, _ = outcome(
        capsys, "parity", bundles / "litert", "--input", f"x={tmp_path}/x.npy", "--verbose"
    )
    assert code == 0 and "user" in out
    np.save(tmp_path / "x.npy", np.full((2, 5), 0.25, np.float32))
    code, _, err = outcome(capsys, "parity", bundles / "litert", "--input", f"x={tmp_path}/x.npy")
    assert code == 2 and "expected shape [2, 4], got [2, 5]" in err


def test_failed_parity_keeps_the_bundle_marked_and_answers_1(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = outcome(
        capsys, "export", f"{folder}/net.py:wrong", "--target", "cloud-tpu", "-o", tmp_path / "b"
    )
    assert code == 1 and "lowering to StableHLO" in err and "FAILED" in out
    assert json.loads((tmp_path / "b" / "manifest.json").read_text())["parity"] == "failed"
    code, out, _ = outcome(capsys, "parity", tmp_path / "b")
    assert code == 1


def test_run_writes_the_outputs_of_each_runtime(
    bundles: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "x.npy", np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4))
    got = {}
    for target, runtime in (("litert", "litert-cpu"), ("cloud-tpu", "xla"), ("litert", "eager")):
        code, _, _ = outcome(
            capsys, "run", bundles / target, "--runtime", runtime,
            "--input", f"x={tmp_path}/x.npy", "-o", tmp_path / f"{runtime}.npz",
        )  # fmt: skip
        assert code == 0
        got[runtime] = np.load(tmp_path / f"{runtime}.npz")
    for name in ("litert-cpu", "xla"):
        np.testing.assert_allclose(got[name]["y"], got["eager"]["y"], rtol=1e-5, atol=1e-6)
        assert got[name]["top"].dtype == np.int64


def test_inspect_shows_signature_versions_and_verdict(
    bundles: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = outcome(capsys, "inspect", bundles / "litert")
    assert code == 0
    for text in ("x", "[2, 4]", "int64", "int32", "litert-torch", "parity: passed", "model.tflite"):
        assert text in out
    code, out, _ = outcome(capsys, "inspect", bundles / "litert", "--json")
    assert code == 0 and json.loads(out)["target"] == "litert"


def test_runtimes_lists_all_five(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = outcome(capsys, "runtimes", "--json")
    assert code == 0
    assert json.loads(out) == dict.fromkeys(
        ["eager", "litert-cpu", "litert-cpu-noreuse", "litert-reference", "xla"]
    )


def test_an_existing_output_is_not_touched_without_force(
    bundles: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (bundles / "litert" / "manifest.json").read_bytes()
    code, _, err = outcome(
        capsys, "export", f"{folder}/net.py:net", "--target", "litert", "-o", bundles / "litert"
    )
    assert code == 2 and "--force" in err and "Traceback" not in err
    assert (bundles / "litert" / "manifest.json").read_bytes() == before


def test_force_replaces_only_when_the_new_one_is_whole(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "b"
    assert outcome(capsys, "export", f"{folder}/net.py:net", "--target", "litert", "-o", place)[0] == 0
    before = (place / "manifest.json").read_bytes()
    failing = ("export", f"{folder}/net.py:nope", "--target", "litert", "-o", place, "--force")
    assert outcome(capsys, *failing)[0] == 2
    assert (place / "manifest.json").read_bytes() == before
    works = ("export", f"{folder}/net.py:other", "--target", "litert", "-o", place, "--force", "--no-parity")
    assert outcome(capsys, *works)[0] == 0
    assert json.loads((place / "manifest.json").read_text())["parity"] == "not checked"
    assert [p.name for p in tmp_path.iterdir()] == ["b"]


def test_a_conversion_beyond_its_time_limit_is_stopped(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = outcome(
        capsys,
        "export",
        f"{folder}/net.py:net",
        "--target",
        "litert",
        "-o",
        tmp_path / "b",
        "--time-limit",
        "0.2",
    )
    assert code == 2 and "time limit of 0.2 s" in err and "--time-limit" in err
    assert list(tmp_path.iterdir()) == []


def started(folder: Path, output: Path, *more: str, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "torch2edge", "export", f"{folder}/net.py:large", "--target", "litert", "-o",
         str(output), *more],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options,
    )  # fmt: skip


def wait_for(process: subprocess.Popen[str], text: str) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        if text in line:
            return
    raise AssertionError(f"{text!r} was not reached")


def conversion_workers(parent: int) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_text()
            if "converters._service" in command and f"\0{parent}\0" not in command:
                found.append(int(entry.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 130)])
def test_a_stopped_export_leaves_nothing_behind(number: int, code: int, folder: Path, tmp_path: Path) -> None:
    process = started(folder, tmp_path / "deep" / "b")
    wait_for(process, "lowering to litert")
    time.sleep(0.5)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert "interrupted" in err and "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_a_conversion_that_dies_is_named_with_its_signal(folder: Path, tmp_path: Path) -> None:
    before = set(conversion_workers(0))
    process = started(folder, tmp_path / "b")
    wait_for(process, "lowering to litert")
    mine = [p for p in conversion_workers(0) if p not in before]
    assert mine
    for worker in mine:
        os.kill(worker, signal.SIGSEGV)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "conversion died" in err and re.search("SIG(SEGV|KILL)", err)
    assert "Traceback" not in err.split("error:")[0]
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_in_the_middle_leaves_nothing_behind(folder: Path, tmp_path: Path) -> None:
    """A limit on the size of files is the full disk that a test may make: the write fails in the middle."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4_000_000, 4_000_000))

    process = started(folder, tmp_path / "b", preexec_fn=limit)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 2
    assert "error:" in err and "next:" in err and "Traceback" not in err
    assert list(tmp_path.iterdir()) == []
