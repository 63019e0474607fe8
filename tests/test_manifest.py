"""Opening a bundle: every kind of damage is a BundleError, and all of it is listed at once."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import bundles
from torch2edge import manifest
from torch2edge.bundle import Bundle
from torch2edge.errors import BundleError, BundleVersionError

FILES = [
    "executables/v5e/empty.bin",
    "golden/00-sample.safetensors",
    "golden/01-random_1_2.safetensors",
    "model.tflite",
]


@pytest.fixture
def net(tmp_path: Path) -> Path:
    return bundles.make(tmp_path / "net")


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One bundle for many small damages; each test puts back what it changes."""
    folder = bundles.make(tmp_path_factory.mktemp("pristine") / "net")
    before = bundles.content(folder)
    yield folder
    assert bundles.content(folder) == before


def problems(folder: Path) -> list[str]:
    """What opening says; nothing else than a BundleError may come."""
    with pytest.raises(BundleError) as caught:
        Bundle.open(folder)
    assert caught.value.where
    assert caught.value.next_step
    return list(caught.value.details) or [caught.value.what]


# ---------------------------------------------------------------- files


def test_the_files_are_those(net: Path) -> None:
    assert sorted(Bundle.open(net).manifest["files"]) == FILES


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    "damage", ["changed", "truncated", "longer", "missing", "a folder", "a link out", "a dead link"]
)
def test_each_damage_of_each_file(net: Path, name: str, damage: str) -> None:
    path, raw = net / name, (net / name).read_bytes()
    if not raw and damage in ("changed", "truncated"):
        path.write_bytes(b"x")  # an empty file can only grow
    elif damage == "changed":
        path.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    elif damage == "truncated":
        path.write_bytes(raw[:-1])
    elif damage == "longer":
        path.write_bytes(raw + b"\0")
    else:
        path.unlink()
    outside = net.parent / "outside"
    if damage == "a folder":
        path.mkdir()
    elif damage == "a link out":
        outside.write_bytes(raw)  # the very same content
        path.symlink_to(outside)
    elif damage == "a dead link":
        path.symlink_to(net / "nothing")
    found = problems(net)
    assert len(found) == 1
    assert found[0].startswith(f"{name}: ")
    if damage == "a link out":
        assert found == [f"{name}: leaves the folder"]


def test_all_damages_are_listed_at_once(net: Path) -> None:
    (net / "model.tflite").write_bytes(b"a modeL")
    (net / FILES[0]).unlink()
    (net / FILES[1]).write_bytes(b"")
    (net / "extra.txt").write_text("")
    (net / "executables" / "more").mkdir()
    (net / "executables" / "more" / "extra.bin").write_text("")
    (net / "folder").symlink_to("/")
    os.mkfifo(net / "queue")
    found = problems(net)
    assert sorted(f.partition(":")[0] for f in found) == sorted(
        ["model.tflite", FILES[0], FILES[1], "extra.txt", "executables/more/extra.bin", "folder", "queue"]
    )
    with pytest.raises(BundleError, match=r"7 problem\(s\)"):
        Bundle.open(net)


@pytest.mark.parametrize(
    "name",
    ["../outside", "golden/../../outside", "/etc/hostname", "a\0b", "n" * 300, "", ".", "manifest.json"],
)
def test_names_that_leave_the_folder_or_that_no_disk_takes(net: Path, name: str) -> None:
    (net.parent / "outside").write_bytes(b"secret")
    data = bundles.read(net)
    sha = "0" * 64
    bundles.rewrite(net, {**data, "files": {**data["files"], name: {"sha256": sha, "bytes": 6}}})
    assert len(problems(net)) == 1


def test_a_link_inside_the_folder_is_fine_and_one_as_manifest_is_not(net: Path) -> None:
    shutil.copyfile(net / "model.tflite", net / "copy.bin")
    data = bundles.read(net)
    (net / "model.tflite").unlink()
    (net / "model.tflite").symlink_to("copy.bin")
    bundles.rewrite(net, {**data, "files": {**data["files"], "copy.bin": data["files"]["model.tflite"]}})
    assert Bundle.open(net).file("model.tflite").read_bytes() == b"a model"
    shutil.move(net / "manifest.json", net.parent / "manifest.json")
    (net / "manifest.json").symlink_to(net.parent / "manifest.json")
    assert problems(net) == ["manifest.json: leaves the folder"]


def test_a_bundle_behind_a_link_or_copied_elsewhere_opens(net: Path) -> None:
    (net.parent / "link").symlink_to(net)
    assert Bundle.open(net.parent / "link").manifest == Bundle.open(net).manifest
    shutil.copytree(net, net.parent / "copied")
    assert len(Bundle.open(str(net.parent / "copied")).goldens()) == 2


def test_folders_that_are_no_bundle(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    (tmp_path / "folder" / "manifest.json").mkdir(parents=True)
    for name, said in (
        ("absent", "does not exist"), ("empty", "is not a bundle"), ("file", "is not a bundle"),
        ("folder", "is not a bundle"), ("file/below", "does not exist"),
    ):  # fmt: skip
        with pytest.raises(BundleError, match=said):
            Bundle.open(tmp_path / name)


# ---------------------------------------------------------------- every byte


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_flipped_byte_is_detected_or_changes_nothing(pristine: Path, data: st.DataObject) -> None:
    wanted = Bundle.open(pristine)
    names = [n for n in FILES if (pristine / n).stat().st_size]
    name = data.draw(st.sampled_from(["manifest.json", *names]))
    raw = bytearray((pristine / name).read_bytes())
    place = data.draw(st.integers(0, len(raw) - 1))
    change = data.draw(st.one_of(st.integers(1, 255), st.integers(0, 7).map(lambda bit: 1 << bit)))
    flipped = bytearray(raw)
    flipped[place] ^= change
    (pristine / name).write_bytes(flipped)
    try:
        if name == "manifest.json":
            try:
                assert Bundle.open(pristine) == wanted
            except BundleError:
                return
        else:
            assert problems(pristine)[0].startswith(f"{name}: ")
    finally:
        (pristine / name).write_bytes(raw)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.integers(0, 5000))
def test_any_truncated_manifest_is_detected(pristine: Path, cut: int) -> None:
    path = pristine / "manifest.json"
    raw = path.read_bytes()
    path.write_bytes(raw[: min(cut, len(raw) - 1)])
    try:
        problems(pristine)
    finally:
        path.write_bytes(raw)


def test_line_ends_and_the_order_of_keys_do_not_count(net: Path) -> None:
    wanted, data = Bundle.open(net), bundles.read(net)
    (net / "manifest.json").write_text(json.dumps(data, indent=4).replace("\n", "\r\n"))
    assert Bundle.open(net) == wanted
    bundles.rewrite(net, dict(reversed(data.items())), sealed=False)
    assert Bundle.open(net) == wanted


def test_a_changed_text_without_a_new_seal(net: Path) -> None:
    bundles.rewrite(net, {**bundles.read(net), "notes": ["é: another note"]}, sealed=False)
    assert problems(net) == ["its content is not what was written (its own sha256 differs)"]


# ---------------------------------------------------------------- the manifest's sense


@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b"\xff\xfe", b"[]", b"3", b"null", b'"text"', b"[" * 100_000, b"{}", b'{"a": 1e999999}'],
)
def test_a_manifest_that_is_no_object(net: Path, raw: bytes) -> None:
    (net / "manifest.json").write_bytes(raw)
    problems(net)


@pytest.mark.parametrize("found", [2, 10**30])
def test_a_newer_format(net: Path, found: int) -> None:
    # a newer format may have other keys, and seal them otherwise: only the version is looked at
    bundles.rewrite(net, {"format_version": found, "news": True}, sealed=False)
    with pytest.raises(BundleVersionError, match="newer torch2edge") as caught:
        Bundle.open(net)
    assert caught.value.got == str(found)
    assert "upgrade" in caught.value.next_step


@pytest.mark.parametrize("found", [None, "1", True, 1.0, 0, -1, [], float("inf"), float("nan")])
def test_a_format_version_of_another_type(net: Path, found: Any) -> None:
    bundles.rewrite(net, {**bundles.read(net), "format_version": found})
    with pytest.raises(BundleError, match="format_version") as caught:
        Bundle.open(net)
    assert not isinstance(caught.value, BundleVersionError)
    assert caught.value.got == repr(found)


def test_all_missing_keys_are_listed(net: Path) -> None:
    data = bundles.read(net)
    for key in manifest.KEYS:
        bundles.rewrite(net, {k: v for k, v in data.items() if k != key})
        assert f"missing: {key}" in problems(net)
    bundles.rewrite(net, {"format_version": 1}, sealed=False)
    assert problems(net) == [*(f"missing: {k}" for k in manifest.KEYS), f"missing: {manifest.SEAL}"]


@pytest.mark.parametrize("key", list(manifest.KEYS))
@pytest.mark.parametrize("value", [None, 3, [3], [None]])
def test_a_key_of_another_type(net: Path, key: str, value: Any) -> None:
    bundles.rewrite(net, {**bundles.read(net), key: value})
    assert problems(net)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("target", "gameboy"), ("target", ["litert"]), ("model", "other.bin"), ("model", "../outside"),
        ("files.model.tflite", None), ("files.model.tflite", {}),
        ("files.model.tflite", {"sha256": 3, "bytes": 7}),
        ("files.model.tflite", {"sha256": "0", "bytes": "7"}),
        ("goldens.0", 3), ("goldens.0.name", None), ("goldens.0.reset", 1), ("goldens.0.inputs", [3]),
        ("goldens.0.file", "../outside"), ("goldens.0.file", "/etc/hostname"), ("goldens.0.file", None),
        ("goldens.0.floors", []), ("goldens.0.floors.y", {}),
        ("goldens.0.floors.y", {"max_abs": 1, "more": 2}),
        ("signature.inputs", None), ("signature.inputs", {}), ("signature.inputs", [3]),
        ("signature.inputs.0.name", 3),
        ("signature.inputs.0.name", ""), ("signature.inputs.0.name", "ids"), ("signature.inputs.0.shape", 3),
        ("signature.inputs.0.shape", ["2", 3]), ("signature.inputs.0.shape", [-1, 3]),
        ("signature.inputs.0.shape", [True, 3]), ("signature.inputs.0.shape", [2.0, 3]),
        ("signature.inputs.0.dtype", "object"), ("signature.inputs.0.dtype", None),
        ("signature.inputs.0.stored", "V8"), ("signature.outputs.1.name", "y"),
        ("signature.outputs.1.shape", None),
        ("signature.parameters.0.kind", "other"), ("signature.parameters.0.optional", None),
        ("signature.parameters.0.optional", 1), ("signature.parameters.0.name", None),
        ("signature.parameters.0.tree", None), ("signature.parameters.0.tree", {"kind": "leaf", "index": 2}),
        ("signature.parameters.1.tree.items.0.index", 9), ("signature.output_tree", None),
        ("signature.output_tree.fields", ["y"]), ("signature.output_tree.type", "not a name"),
        ("signature.state.0.buffer", None), ("signature.state.0.input", None),
        ("signature.state.0.output.name", "y"), ("signature.state.0.input.name", "x"),
    ],
)  # fmt: skip
def test_a_sealed_manifest_that_makes_no_sense(net: Path, path: str, value: Any) -> None:
    data = bundles.read(net)
    steps = ["files", "model.tflite"] if path.startswith("files.") else path.split(".")
    place: Any = data
    for step in steps[:-1]:
        place = place[int(step) if isinstance(place, list) else step]
    place[int(steps[-1]) if isinstance(place, list) else steps[-1]] = value
    bundles.rewrite(net, data)
    assert problems(net)


def test_the_way_this_file_rewrites_is_harmless_in_itself(net: Path) -> None:
    wanted = Bundle.open(net)
    bundles.rewrite(net, bundles.read(net))
    assert Bundle.open(net) == wanted


def test_all_problems_of_a_signature_are_listed(net: Path) -> None:
    data = bundles.read(net)
    data["signature"]["inputs"][0].update(name=3, shape=None, dtype="object")
    data["signature"]["output_tree"]["items"][0]["index"] = 7
    data["target"] = "gameboy"
    del data["origin"]
    bundles.rewrite(net, data)
    found = problems(net)
    for start in ("missing: origin", "target:", "signature.inputs.0.name:", "signature.inputs.0.shape:",
                  "signature.inputs.0.dtype:", "signature.output_tree.0:"):  # fmt: skip
        assert any(f.startswith(start) for f in found), (start, found)
    assert len(found) == 6


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"target": 3, "runtimes": 3}'])
def test_a_report_that_makes_no_sense(tmp_path: Path, text: str) -> None:
    from torch2edge.bundle import staging

    with staging(tmp_path / "net") as made:
        (made.path / "reports").mkdir()
        (made.path / "reports" / "parity.json").write_text(text)
        made.commit(bundles.fill(made))
    with pytest.raises(BundleError, match="parity report"):
        Bundle.open(tmp_path / "net")


def test_a_report_comes_back(tmp_path: Path) -> None:
    from torch2edge.bundle import staging
    from torch2edge.numerics.report import Report
    from torch2edge.stages import OutputRecord, RuntimeRecord

    report = Report(
        target="litert",
        runtimes=(RuntimeRecord("eager", "capture", "passed", seconds=0.5),),
        records=(OutputRecord("eager", "sample", "y", True, "", max_abs=0.0),),
    )
    with staging(tmp_path / "net") as made:
        (made.path / "reports").mkdir()
        report.to_json(made.path / "reports" / "parity.json")
        made.commit(bundles.fill(made))
    assert Bundle.open(tmp_path / "net").report == report
