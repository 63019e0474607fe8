"""Where a bundle is put: over an old one or not, on a full disk, and never over anything else."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests import bundles
from torch2edge import bundle
from torch2edge.errors import ConversionError, OutputError, SourceError

ROOT = Path(__file__).resolve().parent.parent


def model(folder: Path) -> bytes:
    """The payload of a bundle that opens."""
    return bundle.Bundle.open(folder).file("model.tflite").read_bytes()


def test_without_force_the_old_one_is_untouched(tmp_path: Path) -> None:
    before = bundles.content(bundles.make(tmp_path / "net"))
    with pytest.raises(OutputError, match="exists already") as caught:
        bundles.make(tmp_path / "net", b"new")
    assert "--force" in caught.value.next_step
    assert bundles.content(tmp_path / "net") == before
    assert os.listdir(tmp_path) == ["net"]


def test_a_place_taken_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="exists already"), bundle.staging(tmp_path / "net") as staging:
        given = bundles.fill(staging, b"slow")
        bundles.make(tmp_path / "net", b"quick")
        staging.commit(given)
    assert model(tmp_path / "net") == b"quick"
    assert os.listdir(tmp_path) == ["net"]


def test_force_replaces_a_bundle_and_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    for content in (b"one", b"two"):
        bundles.make(tmp_path / "net", content, force=True)
        assert model(tmp_path / "net") == content
        assert os.listdir(tmp_path) == ["net"]


def test_an_error_during_the_replacement_keeps_the_old_one(tmp_path: Path) -> None:
    before = bundles.content(bundles.make(tmp_path / "net"))
    with pytest.raises(ConversionError), bundle.staging(tmp_path / "net", force=True) as staging:
        bundles.fill(staging, b"new")
        raise ConversionError("no")
    assert bundles.content(tmp_path / "net") == before
    assert os.listdir(tmp_path) == ["net"]


@pytest.mark.parametrize("error", [OSError(errno.EBUSY, "busy"), KeyboardInterrupt()])
def test_an_error_between_the_two_renames_puts_the_old_one_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    before = bundles.content(bundles.make(tmp_path / "net"))
    rename = os.rename
    failed: list[Path] = []

    def broken(source: Path, target: Path) -> None:
        if str(source).endswith(".partial") and not failed:
            failed.append(source)
            raise error
        rename(source, target)

    monkeypatch.setattr(os, "rename", broken)
    with pytest.raises((OSError, KeyboardInterrupt)):
        bundles.make(tmp_path / "net", b"new", force=True)
    assert failed
    assert bundles.content(tmp_path / "net") == before
    assert os.listdir(tmp_path) == ["net"]


def test_ctrl_c_while_the_old_one_is_removed_leaves_the_new_one_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundles.make(tmp_path / "net")
    remove = shutil.rmtree
    calls: list[Path] = []

    def interrupted(path: Path, ignore_errors: bool = False) -> None:
        calls.append(path)
        if len(calls) == 1:
            raise KeyboardInterrupt
        remove(path, ignore_errors=ignore_errors)

    monkeypatch.setattr(shutil, "rmtree", interrupted)
    with pytest.raises(KeyboardInterrupt):
        bundles.make(tmp_path / "net", b"new", force=True)
    assert str(calls[0]).endswith(".old")
    assert os.listdir(tmp_path) == ["net"]
    assert model(tmp_path / "net") == b"new"


@pytest.mark.parametrize("text", [None, "{}", "[]", "{", '{"manifest_version": 3, "name": "a web page"}'])
def test_force_never_replaces_what_is_no_bundle(tmp_path: Path, text: str | None) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    (folder / "holiday.jpg").write_bytes(b"dear")
    if text is not None:
        (folder / "manifest.json").write_text(text)
    before = bundles.content(folder)
    with pytest.raises(OutputError, match="is not a bundle"):
        bundles.make(folder, force=True)
    assert bundles.content(folder) == before
    assert os.listdir(tmp_path) == ["photos"]


@pytest.mark.parametrize("force", [False, True])
def test_the_output_is_a_file_or_a_link(tmp_path: Path, force: bool) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "nowhere").symlink_to(tmp_path / "absent")
    bundles.make(tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for name in ("file", "nowhere", "link"):
        with pytest.raises(OutputError) as caught:
            bundles.make(tmp_path / name, force=force)
        assert caught.value.where == str(tmp_path / name)
    assert (tmp_path / "file").read_text() == "mine"
    assert sorted(os.listdir(tmp_path)) == ["file", "link", "nowhere", "real"]


@pytest.mark.parametrize("name", ["file/net", "file/a/net", "/proc/net0", "/proc/a/net0", "n" * 300])
def test_a_parent_that_cannot_be_written(tmp_path: Path, name: str) -> None:
    """/proc refuses root as well; below a file there is no folder; no disk takes a name of 300 letters."""
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OutputError) as caught, bundle.staging(tmp_path / name) as staging:
        staging.commit(bundles.fill(staging))
    assert "cannot be written" in caught.value.what
    assert caught.value.next_step == "choose another -o"
    assert os.listdir(tmp_path) == ["file"]


def test_relative_outputs_and_a_change_of_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with bundle.staging(Path("net")) as staging:
        given = bundles.fill(staging)
        monkeypatch.chdir(tmp_path / "elsewhere")
        staging.commit(given)
    assert sorted(os.listdir(tmp_path)) == ["elsewhere", "net"]
    assert bundle.Bundle.open(tmp_path / "net").signature == bundles.SIGNATURE


def test_a_bundle_can_be_read_by_others_as_far_as_umask_allows(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        assert bundles.make(tmp_path / "net").stat().st_mode & 0o777 == 0o755
    finally:
        os.umask(before)


# ---------------------------------------------------------------- the disk


LIMITED = """
    import resource, signal, sys
    from pathlib import Path
    from tests import bundles
    from torch2edge.errors import OutputError
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
    try:
        bundles.make(Path(sys.argv[1]), b"x" * 300, force=True)
    except OutputError as error:
        sys.exit(f"{error.what} @ {error.where}")
"""


def _limited(output: Path, limit: int) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-B", "-c", textwrap.dedent(LIMITED), str(output), str(limit)]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("limit", [0, 100, 310, 1000])
def test_a_real_write_that_fails_half_way(tmp_path: Path, limit: int) -> None:
    """0 and 100 stop the model, 310 a golden file (native code writes it), 1000 the manifest."""
    before = bundles.content(bundles.make(tmp_path / "net"))
    done = _limited(tmp_path / "net", limit)
    assert done.returncode == 1, done.stderr
    assert done.stderr.startswith("the disk is full"), done.stderr
    assert bundles.content(tmp_path / "net") == before
    assert os.listdir(tmp_path) == ["net"]


def test_the_same_with_room_enough(tmp_path: Path) -> None:
    assert _limited(tmp_path / "net", 1_000_000).returncode == 0
    assert model(tmp_path / "net") == b"x" * 300


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
@pytest.mark.parametrize("native", [False, True])
def test_a_full_disk_is_named_as_such(tmp_path: Path, number: int, native: bool) -> None:
    text = os.strerror(number)
    error = RuntimeError(f"I/O error: {text} (os error {number})") if native else OSError(number, text)
    with pytest.raises(OutputError, match="the disk is full") as caught, bundle.staging(tmp_path / "net"):
        raise error
    assert caught.value.__cause__ is error
    assert os.listdir(tmp_path) == []


def test_a_full_disk_in_a_worker_is_named_as_such(tmp_path: Path) -> None:
    text = f"conversion failed: OSError: [Errno 28] {os.strerror(errno.ENOSPC)}"
    with pytest.raises(OutputError, match="the disk is full") as caught, bundle.staging(tmp_path / "net"):
        raise ConversionError(text, where="conversion")
    assert caught.value.where == "conversion"


def test_errors_about_other_files_are_not_the_outputs(tmp_path: Path) -> None:
    """A model that cannot find its own file says nothing about the output, nor does a silent server."""
    with pytest.raises(FileNotFoundError), bundle.staging(tmp_path / "net"):
        Path("/no/such/vocabulary.txt").read_text()
    with pytest.raises(ConnectionError), bundle.staging(tmp_path / "net"):
        raise ConnectionError("no answer")
    with pytest.raises(SourceError), bundle.staging(tmp_path / "net"):
        raise SourceError("model.py does not exist")
    with pytest.raises(OutputError, match="cannot be written"), bundle.staging(tmp_path / "net") as staging:
        (staging.path / "no" / "folder").write_text("")
    assert os.listdir(tmp_path) == []
