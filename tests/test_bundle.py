"""Writing a bundle: what comes back, and in one go or not at all, under Ctrl-C too."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

from tests import bundles
from torch2edge import bundle
from torch2edge.errors import BundleError, ConversionError
from torch2edge.stages import Golden

ROOT = Path(__file__).resolve().parent.parent


# ---------------------------------------------------------------- what is written


def test_a_bundle_comes_back_as_it_was_written(tmp_path: Path) -> None:
    bundles.make(tmp_path / "net")
    opened = bundle.Bundle.open(tmp_path / "net")
    assert opened.signature == bundles.SIGNATURE
    assert (opened.target, opened.arguments, opened.report) == ("litert", ("weight", "bias"), None)
    assert opened.manifest["notes"] == ["é: a note"]
    assert opened.manifest["options"] == {"strict": False}
    assert opened.file("model.tflite").read_bytes() == b"a model"
    with pytest.raises(BundleError, match=r"has no other\.bin"):
        opened.file("other.bin")
    assert sorted(os.listdir(tmp_path)) == ["net"]


def test_goldens_come_back_with_their_dtypes_shapes_and_bytes(tmp_path: Path) -> None:
    found = bundle.Bundle.open(bundles.make(tmp_path / "net")).goldens()
    assert len(found) == len(bundles.GOLDENS)
    for got, wanted in zip(found, bundles.GOLDENS, strict=True):
        assert (got.name, got.kind, got.reset, got.floors) == (
            wanted.name,
            wanted.kind,
            wanted.reset,
            wanted.floors,
        )
        for part in ("inputs", "outputs", "undecided"):
            ours, theirs = getattr(got, part), getattr(wanted, part)
            assert list(ours) == list(theirs)
            for name in theirs:
                assert (ours[name].dtype, ours[name].shape) == (theirs[name].dtype, theirs[name].shape)
                assert ours[name].tobytes() == theirs[name].tobytes()


@pytest.mark.parametrize("name", bundles.DTYPES)
def test_goldens_of_each_dtype_and_byte_order(tmp_path: Path, name: str) -> None:
    array = np.arange(6).reshape(2, 3).astype(np.dtype(name).newbyteorder(">")).T
    entries = bundle.write_goldens(tmp_path, [Golden("g", "user", {"x": array}, {})])
    got = bundle._golden(tmp_path, entries[0]).inputs["x"]
    assert got.dtype == np.dtype(name)
    assert np.array_equal(got, array)


def test_a_name_of_a_case_never_leads_out_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    entries = bundle.write_goldens(tmp_path / "in", [Golden("../../up", "user", {"x": np.ones(1)}, {})])
    assert entries[0]["name"] == "../../up"
    assert os.listdir(tmp_path) == ["in"]
    assert len(os.listdir(tmp_path / "in" / "golden")) == 1


def test_a_golden_file_that_lost_an_array_or_is_cut_off(tmp_path: Path) -> None:
    opened = bundle.Bundle.open(bundles.make(tmp_path / "net"))
    entry = opened.manifest["goldens"][0]
    path = opened.path / entry["file"]
    raw = path.read_bytes()
    shutil.copyfile(opened.path / opened.manifest["goldens"][1]["file"], path)  # has no "undecided"
    with pytest.raises(BundleError, match="lacks"):
        opened.goldens()
    for length in (0, 4, 20, len(raw) - 1):
        path.write_bytes(raw[:length])
        with pytest.raises(BundleError, match="cannot be read"):
            opened.goldens()
    path.write_bytes(raw)
    assert len(opened.goldens()) == 2


# ---------------------------------------------------------------- all or nothing


@pytest.mark.parametrize(
    "error", [ConversionError("no"), ValueError("no"), KeyboardInterrupt(), SystemExit(3)]
)
@pytest.mark.parametrize("where", ["net", "build/deep/net"])
def test_an_error_inside_leaves_nothing(tmp_path: Path, error: BaseException, where: str) -> None:
    with pytest.raises(type(error)) as caught, bundle.staging(tmp_path / where) as staging:
        bundles.fill(staging)
        assert os.listdir(tmp_path) != []
        raise error
    assert caught.value is error
    assert os.listdir(tmp_path) == []


def test_parents_that_held_something_stay(tmp_path: Path) -> None:
    (tmp_path / "build").mkdir()
    with pytest.raises(ConversionError), bundle.staging(tmp_path / "build" / "a" / "net"):
        (tmp_path / "build" / "a" / "mine").write_text("")
        raise ConversionError("no")
    assert os.listdir(tmp_path / "build" / "a") == ["mine"]


def test_no_commit_is_no_bundle(tmp_path: Path) -> None:
    with bundle.staging(tmp_path / "net") as staging:
        bundles.fill(staging)
    assert os.listdir(tmp_path) == []


CHILD = """
    import sys, time
    from pathlib import Path
    from tests import bundles
    from torch2edge import bundle
    output, force = Path(sys.argv[1]), sys.argv[2] == "force"
    with bundle.staging(output, force=force) as staging:
        given = bundles.fill(staging, b"the new one")
        print("ready", flush=True)
        time.sleep(60)
        staging.commit(given)
"""


def _child(output: Path, force: str = "") -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(CHILD), str(output), force],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


def test_ctrl_c_in_the_middle_leaves_nothing(tmp_path: Path) -> None:
    with _child(tmp_path / "net") as child:
        assert len(os.listdir(tmp_path)) == 1
        child.send_signal(signal.SIGINT)
        _, said = child.communicate(timeout=30)
    assert child.returncode == -signal.SIGINT
    assert said.rstrip().endswith("KeyboardInterrupt")
    assert os.listdir(tmp_path) == []


def test_ctrl_c_in_the_middle_of_a_replacement_keeps_the_old_one(tmp_path: Path) -> None:
    before = bundles.content(bundles.make(tmp_path / "net"))
    with _child(tmp_path / "net", "force") as child:
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=30)
    assert os.listdir(tmp_path) == ["net"]
    assert bundles.content(tmp_path / "net") == before


def test_what_a_killed_run_left_is_not_in_the_way(tmp_path: Path) -> None:
    with _child(tmp_path / "net") as child:
        child.kill()
        child.communicate(timeout=30)
    left = os.listdir(tmp_path)
    assert [n.endswith(".partial") for n in left] == [True]
    (tmp_path / ".net.00000000.old").mkdir()
    bundles.make(tmp_path / "net")
    bundles.make(tmp_path / "net", b"second", force=True)
    assert bundle.Bundle.open(tmp_path / "net").file("model.tflite").read_bytes() == b"second"
    assert sorted(os.listdir(tmp_path)) == sorted([*left, ".net.00000000.old", "net"])


def test_ctrl_c_through_the_command_line_answers_130(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from torch2edge import cli
    from torch2edge.cli import runtimes

    def run(arguments: object) -> int:
        with bundle.staging(tmp_path / "net") as staging:
            bundles.fill(staging)
            signal.raise_signal(signal.SIGINT)
            time.sleep(5)
        return 0

    monkeypatch.setattr(runtimes, "run", run)
    assert cli.main(["runtimes"]) == 130
    assert os.listdir(tmp_path) == []
    assert "Traceback" not in capsys.readouterr().err
