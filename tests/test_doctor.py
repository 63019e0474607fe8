"""The doctor: each state that a part can be in, its exit code, and the one command that mends it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from torch2edge import cli, doctor, registry
from torch2edge.doctor import Part

GOOD = Part("pytest", ">=1", "pytest", True, "pip install pytest")


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let the doctor look at these parts only: importing the real ones takes half a minute."""

    def put(*parts: Part) -> None:
        monkeypatch.setattr(doctor, "PARTS", parts)
        monkeypatch.setattr(doctor, "_torchvision", lambda say: [])

    return put


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Put a module with a distribution's record on the path of this process and of the probes."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def put(code: str, version: str = "2.3.1") -> None:
        record = tmp_path / f"fake_part-{version}.dist-info"
        record.mkdir()
        (record / "METADATA").write_text(f"Metadata-Version: 2.1\nName: fake-part\nVersion: {version}\n")
        (tmp_path / "fake_part.py").write_text(code)

    return put


def fake(wanted: str = "==2.3.*", *, required: bool = True) -> Part:
    return Part("fake-part", wanted, "fake_part", required, "pip install 'fake-part==2.3.*'")


def test_a_part_that_works(installed: Callable[[str, str], None]) -> None:
    installed("", "2.3.1+cpu")
    assert doctor._part(fake()) == doctor.Finding("fake-part", "2.3.1+cpu", "ok", "imports")


@pytest.mark.parametrize(("required", "status"), [(True, "missing"), (False, "optional")])
def test_a_part_that_is_not_there(required: bool, status: str) -> None:
    found = doctor._part(fake(required=required))
    assert (found.version, found.status, found.says, found.fix) == ("", status, "not installed", fake().fix)


@pytest.mark.parametrize(("required", "status"), [(True, "broken"), (False, "note")])
@pytest.mark.parametrize("version", ["2.2.9", "2.4.0", "3.0"])
def test_a_version_out_of_range(
    installed: Callable[[str, str], None], version: str, required: bool, status: str
) -> None:
    installed("", version)
    found = doctor._part(fake(required=required))
    assert (found.version, found.status, found.says, found.fix) == (
        version,
        status,
        "tested with ==2.3.*",
        fake().fix,
    )


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("raise ImportError('undefined symbol: foo')", "ImportError: undefined symbol: foo"),
        ("print('out')\nimport sys\nprint('noise', file=sys.stderr)\nraise OSError('two\\nlines')", "lines"),
        ("import os; os._exit(3)", "exit code 3"),
        ("import os; os.abort()", "the import dies with SIGABRT"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "the import dies with SIGSEGV"),
        (
            "import sys; sys.stderr.buffer.write(b'\\xff bad bytes\\n'); sys.exit(1)",
            "\N{REPLACEMENT CHARACTER} bad bytes",
        ),
        ("raise ImportError('x' * 1000)", "ImportError: " + "x" * 107),
    ],
)
def test_a_broken_import_is_told_by_its_last_line(
    installed: Callable[..., None], code: str, says: str
) -> None:
    installed(code)
    found = doctor._part(fake())
    assert (found.status, found.says, found.fix) == ("broken", says, fake().fix)
    assert doctor._part(fake(required=False)).status == "note"


def test_an_import_that_hangs(installed: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    installed("import time; time.sleep(600)")
    monkeypatch.setattr(doctor, "PROBE_SECONDS", 1)
    assert doctor._part(fake()).says == "the import took more than 1 s"


def test_files_of_the_current_folder_are_not_taken_for_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pytest.py").write_text("raise ImportError('the wrong file')")
    monkeypatch.chdir(tmp_path)
    assert doctor._part(GOOD).status == "ok"


def test_all_well_is_0_and_no_command_is_printed(
    only: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    only(GOOD)
    assert cli.main(["doctor"]) == 0
    said = capsys.readouterr()
    assert "pytest" in said.out
    assert "pip install" not in said.out.replace("torch2edge[", "")
    assert "importing pytest" in said.err


def test_a_missing_required_part_is_3_with_the_command(
    only: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    only(GOOD, fake())
    assert cli.main(["doctor"]) == 3
    assert "fake-part: pip install 'fake-part==2.3.*'\n" in capsys.readouterr().out


def test_a_broken_required_part_is_3(
    only: Callable[..., None], installed: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    installed("raise ImportError('undefined symbol [bar] [/bar] foo')")
    only(GOOD, fake())
    assert cli.main(["doctor"]) == 3
    said = capsys.readouterr().out
    assert "broken ImportError: undefined symbol [bar] [/bar] foo" in " ".join(
        said.split()
    )  # the table wraps
    assert "fake-part: pip install 'fake-part==2.3.*'\n" in said


def test_a_missing_optional_part_is_0_with_the_command(
    only: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    only(GOOD, fake(required=False))
    assert cli.main(["doctor"]) == 0
    assert "fake-part: pip install" in capsys.readouterr().out


def test_json_is_one_document_and_the_exit_code_stays(
    only: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    only(GOOD, fake())
    assert cli.main(["doctor", "--json"]) == 3
    found = {f["part"]: f for f in json.loads(capsys.readouterr().out)}
    assert (found["pytest"]["status"], found["fake-part"]["status"]) == ("ok", "missing")
    assert found["python"]["status"] == "ok"


def test_every_runtime_is_told_and_hardware_is_not_looked_for(only: Callable[..., None]) -> None:
    only(GOOD)
    found = {f.part: f for f in doctor.diagnose()}
    for name in registry.names("runtime"):
        why = registry.get("runtime", name).available()
        finding = found[f"runtime {name}"]
        assert finding.status == ("optional" if why else "ok")
        assert finding.says == (f"not here: {why}" if why else "available")
    assert found["hardware"].status == "note"
    for word in ("TPU", "phone", "NPU"):
        assert word in found["hardware"].says


def test_a_runtime_that_cannot_be_asked_hides_no_other(
    only: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    only(GOOD)
    from torch2edge.runtime import eager, xla

    def broken() -> str | None:
        raise ImportError("numpy is broken")

    monkeypatch.setattr(eager, "available", broken)
    monkeypatch.setattr(xla, "available", lambda: "needs jax")
    found = {f.part: f for f in doctor.diagnose()}
    assert (found["runtime eager"].status, found["runtime eager"].says) == (
        "note",
        "ImportError: numpy is broken",
    )
    assert (found["runtime xla"].status, found["runtime xla"].says) == ("optional", "not here: needs jax")
    assert "runtime litert-cpu" in found


def test_an_old_python_a_small_disk_and_little_memory(
    only: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    only()
    before = {f.part: f for f in doctor.diagnose()}
    assert (before["python"].status, before["python"].fix) == ("ok", "")
    monkeypatch.setattr("torch2edge.doctor.sys.version_info", (3, 10, 1))
    monkeypatch.setattr(
        "torch2edge.doctor.shutil.disk_usage", lambda folder: type("Usage", (), {"free": 1e9})
    )
    monkeypatch.setattr("torch2edge.doctor.os.sysconf", lambda name: 1000)
    found = {f.part: f for f in doctor.diagnose()}
    assert (found["python"].status, found["python"].version) == ("broken", "3.10.1")
    assert (found["disk"].status, found["memory"].status) == ("note", "note")
    assert found["disk"].fix


@pytest.mark.parametrize("failure", ["", "RuntimeError: operator torchvision::nms does not exist"])
def test_torchvision_of_another_torch(monkeypatch: pytest.MonkeyPatch, failure: str) -> None:
    monkeypatch.setattr(doctor, "version", lambda name: "0.99")
    monkeypatch.setattr(doctor, "_probe", lambda module: failure)
    (found,) = doctor._torchvision(lambda line: None)
    assert found.status == ("broken" if failure else "ok")
    assert found.fix == ("pip uninstall -y torchvision" if failure else "")


def test_the_ranges_are_those_of_the_package() -> None:
    """The project file is what pip reads; the doctor must not ask for something else."""
    import tomllib

    project = tomllib.loads((Path(doctor.__file__).parent.parent / "pyproject.toml").read_text())["project"]
    optional = [r for rows in project["optional-dependencies"].values() for r in rows]
    for part in doctor.PARTS:
        if part.name == "transformers":
            continue  # only for folders in the Hugging Face layout, so no dependency
        rows = project["dependencies"] if part.required else optional
        assert part.name + part.wanted in rows
