"""The command line from outside: exit codes, what goes to which stream, and help."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from torch2edge import __version__, errors
from torch2edge.cli import INTERNAL, main

COMMANDS = ("export", "parity", "run", "inspect", "runtimes", "doctor")
ROOT = Path(__file__).resolve().parents[2]

Streams = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def no_worker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing here gets as far as a conversion, so no converter is started for it."""
    from torch2edge.converters import lowering

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(lowering, "start", lambda time_limit: SimpleNamespace(close=lambda: None))


def answer(capsys: Streams, *argv: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command; a traceback is never among them."""
    code = main(list(argv))
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    return code, out, err


def export(*argv: str) -> tuple[str, ...]:
    """Arguments of an export to a folder of the test's own."""
    return ("export", *argv, "--target", "litert", "-o", "made")


def test_help_lists_every_command(capsys: Streams) -> None:
    code, out, err = answer(capsys, "--help")
    assert (code, err) == (0, "")
    lines = [line.split()[0] for line in out.splitlines() if line.startswith("    ") and line.strip()]
    assert [c for c in COMMANDS if c not in lines] == []
    assert "exit codes" in out


def test_every_file_of_a_command_is_in_help(capsys: Streams) -> None:
    out = answer(capsys, "--help")[1]
    files = [p.stem for p in (ROOT / "torch2edge" / "cli").glob("*.py") if not p.stem.startswith("_")]
    assert set(COMMANDS) <= set(files)
    assert [f for f in files if f not in out] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help(capsys: Streams, command: str) -> None:
    code, out, err = answer(capsys, command, "--help")
    assert (code, err) == (0, "")
    assert f"torch2edge {command}" in out and "--json" in out and "--debug" in out


def test_version(capsys: Streams) -> None:
    assert answer(capsys, "--version")[:2] == (0, f"torch2edge {__version__}\n")


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ((), "required"),
        (("exprot",), "invalid choice: 'exprot'"),
        (("export",), "required"),
        (("export", "net.py:make"), "--target"),
        (("export", "net.py:make", "--target", "toaster"), "invalid choice: 'toaster'"),
        (("export", "net.py:make", "--target", "litert", "--wieghts", "w.pt"), "--wieghts"),
        (("export", "net.py:make", "--target", "litert", "--time-limit", "soon"), "invalid float"),
        (("inspect",), "required"),
        (("runtimes", "extra"), "unrecognized"),
    ],
)
def test_usage_errors_answer_2_on_stderr(capsys: Streams, argv: tuple[str, ...], words: str) -> None:
    code, out, err = answer(capsys, *argv)
    assert (code, out) == (2, "")
    assert words in err and "usage:" in err


SCRIPT = """
import torch
def make(): return torch.nn.Identity(), torch.ones(2)
def boom(): raise ValueError("no data here")
def loud():
    print("from the factory")
    raise ValueError("after a print")
"""

BAD = [
    (("nothing.py:make",), "SourceError", "does not exist"),
    (("net.py:mkae",), "SourceError", "did you mean net.py:make?"),
    (("net.py:boom",), "SourceError", "no data here"),
    (("net.py",), "SourceError", "has no get_model()"),
    (("net.pt2",), "SourceError", "does not exist"),
    (("a_package_of_nobody:make",), "SourceError", "no module"),
    (("net.py:make", "--weights", "w.pt"), "WeightsError", "does not exist"),
    (("net.py:make", "--input", "input=2x"), "InputError", "is no shape"),
    (("net.py:make", "--input", "inptu=2"), "InputError", "did you mean input?"),
]


@pytest.mark.parametrize(("argv", "kind", "words"), BAD)
def test_a_bad_input_answers_2_on_stderr(
    capsys: Streams, argv: tuple[str, ...], kind: str, words: str
) -> None:
    Path("net.py").write_text(SCRIPT)
    code, out, err = answer(capsys, *export(*argv))
    assert (code, out) == (2, "")
    assert "error: " in err and words in err and "next: " in err
    assert not Path("made").exists()  # nothing half-made stays


@pytest.mark.parametrize(("argv", "kind", "words"), BAD)
def test_json_gives_the_error_as_one_document(
    capsys: Streams, argv: tuple[str, ...], kind: str, words: str
) -> None:
    Path("net.py").write_text(SCRIPT)
    code, out, err = answer(capsys, *export(*argv), "--json")
    error = json.loads(out)["error"]
    assert code == 2 and error["kind"] == kind
    assert all(error[field] for field in ("what", "where", "expected", "got", "next"))
    assert words in " ".join([error["what"], error["next"], error["got"], *error["details"]])
    assert words in err


def test_what_the_factory_prints_stays_out_of_the_document(capsys: Streams) -> None:
    Path("net.py").write_text(SCRIPT)
    _, out, err = answer(capsys, *export("net.py:loud"), "--json")
    assert json.loads(out)["error"]["got"] == "ValueError: after a print"
    assert "from the factory" in err


def test_debug_shows_the_traceback(capsys: Streams) -> None:
    Path("net.py").write_text(SCRIPT)
    code = main([*export("net.py:boom"), "--debug"])
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert "Traceback" in err and 'raise ValueError("no data here")' in err


def test_an_output_that_stands_is_not_touched(capsys: Streams) -> None:
    Path("net.py").write_text(SCRIPT)
    Path("made").mkdir()
    Path("made/mine.txt").write_text("mine")
    code, out, err = answer(capsys, *export("net.py:make"))
    assert (code, out) == (2, "") and "--force" in err
    assert Path("made/mine.txt").read_text() == "mine"


@pytest.mark.parametrize("argv", [("inspect", "nothing"), ("parity", "nothing"), ("run", "nothing")])
@pytest.mark.parametrize("as_json", [False, True])
def test_a_bundle_that_is_not_there(capsys: Streams, argv: tuple[str, ...], as_json: bool) -> None:
    code, out, err = answer(capsys, *argv, *(["--json"] if as_json else []))
    assert code == 2 and "nothing" in err
    assert (json.loads(out)["error"]["kind"] == "BundleError") if as_json else (out == "")


@pytest.mark.parametrize("command", ["parity", "run"])
def test_input_files_that_cannot_be_read_are_all_listed(capsys: Streams, command: str) -> None:
    Path("bad.npy").write_text("no array")
    texts = ["x=no.npy", "y", "z=bad.npy"]
    flags = [part for text in texts for part in ("--input", text)]
    code, out, err = answer(capsys, command, "nothing", *flags)
    assert (code, out) == (2, "")
    if command == "parity":  # run opens the bundle first
        assert all(text in err for text in texts)


def test_runtimes_as_one_document(capsys: Streams) -> None:
    code, out, err = answer(capsys, "runtimes", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert {"eager", "xla", "litert-cpu"} <= set(found) and found["eager"] is None
    code, table, _ = answer(capsys, "runtimes")
    assert code == 0 and all(name in table for name in found)


def raising(error: BaseException) -> Callable[..., Any]:
    """A stand-in for an export that ends like this."""

    def action(*args: Any, **kwargs: Any) -> Any:
        raise error

    return action


FIELDS: dict[str, Any] = {"where": "w", "expected": "e", "got": "g", "next_step": "n"}
ENDS = [
    (errors.UsageError("u", **FIELDS), 2),
    (errors.CaptureError("c", **FIELDS), 2),
    (errors.UnsupportedError("s", details=("one", "two"), **FIELDS), 2),
    (errors.WorkerCrashed("died", **FIELDS), 2),
    (errors.MissingPartError("m", **FIELDS), 3),
]


@pytest.mark.parametrize(
    ("error", "code"), ENDS, ids=lambda v: type(v).__name__ if isinstance(v, Exception) else ""
)
@pytest.mark.parametrize("as_json", [False, True])
def test_exit_codes_by_kind(
    capsys: Streams, monkeypatch: pytest.MonkeyPatch, error: errors.Torch2EdgeError, code: int, as_json: bool
) -> None:
    monkeypatch.setattr("torch2edge.pipeline.export", raising(error))
    found, out, err = answer(capsys, *export("x.py:y"), *(["--json"] if as_json else []))
    assert found == code and str(error) in err
    assert (json.loads(out) == {"error": error.to_json()}) if as_json else (out == "")


def test_a_bug_and_ctrl_c_have_their_own_codes(capsys: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch2edge.pipeline.export", raising(ZeroDivisionError("inside")))
    code, out, err = answer(capsys, *export("x.py:y"))
    assert (code, out) == (INTERNAL, "")
    assert "internal error: ZeroDivisionError: inside" in err and "--debug" in err
    monkeypatch.setattr("torch2edge.pipeline.export", raising(KeyboardInterrupt()))
    assert answer(capsys, *export("x.py:y"))[:2] == (130, "")


def failed_bundle() -> Any:
    """What a ParityError carries: a bundle on disk, marked as failed."""
    files = {"model.tflite": {"bytes": 10, "sha256": "0" * 64}}
    manifest = {"parity": "failed", "files": files, "model": "model.tflite"}
    return SimpleNamespace(path=Path("made"), manifest=manifest, report=None)


def test_failed_parity_answers_1(capsys: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    error = errors.ParityError("parity failed for litert", bundle=failed_bundle(), **FIELDS)
    monkeypatch.setattr("torch2edge.pipeline.export", raising(error))
    code, _, err = answer(capsys, *export("x.py:y"))
    assert code == 1 and "parity failed for litert" in err


def test_failed_parity_gives_one_document(capsys: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    error = errors.ParityError("parity failed for litert", bundle=failed_bundle(), **FIELDS)
    monkeypatch.setattr("torch2edge.pipeline.export", raising(error))
    code, out, _ = answer(capsys, *export("x.py:y"), "--json")
    document = json.loads(out)
    assert code == 1 and document["litert"]["parity"] == "failed"
    assert document["error"]["kind"] == "ParityError"


def test_what_forward_prints_stays_out_of_the_document(
    capsys: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    def printing(*args: Any, **kwargs: Any) -> Any:
        print("from forward")
        return failed_bundle()

    monkeypatch.setattr("torch2edge.pipeline.export", printing)
    code, out, err = answer(capsys, *export("x.py:y"), "--json")
    assert code == 0 and "litert" in json.loads(out)
    assert "from forward" in err


@pytest.mark.parametrize("argv", [("--help",), ("export", "--help"), ("nonsense",)])
def test_no_heavy_library_for_help_or_a_typing_mistake(argv: tuple[str, ...]) -> None:
    heavy = ("torch", "jax", "litert_torch", "rich", "safetensors", "numpy")
    code = (
        "import sys; from torch2edge.cli import main; main(sys.argv[1:]);"
        f"print([m for m in {heavy!r} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *argv], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr.splitlines()[-1] == "[]"


def test_python_m_gives_the_same_answer_to_the_shell() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "torch2edge", "nonsense"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2 and done.stdout == "" and "invalid choice" in done.stderr
