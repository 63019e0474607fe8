"""The bundle: a folder with a manifest, a payload, golden cases and reports; written in one go or not at all."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from torch2edge.errors import BundleError, BundleVersionError, OutputError
from torch2edge.stages import Floor, Golden, Parameter, Signature, StateSpec, TensorSpec

if TYPE_CHECKING:
    from torch2edge.numerics.report import Report

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
KEYS = ("target", "signature", "arguments", "model", "origin", "versions", "created", "parity", "goldens", "notes", "files")


class Staging:
    """A bundle in the making, in a temporary folder beside its place.

    Attributes:
        path: where to write.
        output: where it will stand.
    """

    def __init__(self, path: Path, output: Path, force: bool) -> None:
        self.path, self.output, self._force = path, output, force

    def commit(self, manifest: dict[str, Any]) -> None:
        """Hash every file, write the manifest, and put the folder in its place by a rename.

        Raises:
            OutputError: the place was taken meanwhile, or the disk is full.
        """
        files = {}
        for path in sorted(p for p in self.path.rglob("*") if p.is_file() and p.name != MANIFEST):
            name = path.relative_to(self.path).as_posix()
            files[name] = {"sha256": _sha256(path), "bytes": path.stat().st_size}
        text = json.dumps({"format_version": FORMAT_VERSION, **manifest, "files": files}, indent=1)
        with _explained(self.output):
            with (self.path / MANIFEST).open("w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            self._place()

    def _place(self) -> None:
        if not self.output.exists():
            os.rename(self.path, self.output)
            return
        _check_place(self.output, self._force)
        old = self.path.with_suffix(".old")
        os.rename(self.output, old)
        try:
            os.rename(self.path, self.output)
        except BaseException:
            os.rename(old, self.output)
            raise
        shutil.rmtree(old, ignore_errors=True)


@contextmanager
def staging(output: Path, *, force: bool = False) -> Iterator[Staging]:
    """A temporary sibling of `output`; gone on any error, Ctrl-C included.

    Raises:
        OutputError: `output` stands already, or its parent cannot be written.
    """
    output = Path(os.path.abspath(output))
    _check_place(output, force)
    with _explained(output):
        output.parent.mkdir(parents=True, exist_ok=True)
        path = Path(tempfile.mkdtemp(prefix=f".{output.name}.", suffix=".partial", dir=output.parent))
        path.chmod(0o755)
    try:
        with _explained(output):
            yield Staging(path, output, force)
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _check_place(output: Path, force: bool) -> None:
    if not output.exists() and not output.is_symlink():
        return
    if not force:
        raise OutputError(
            f"{output} exists already", where=str(output), expected="a folder that does not exist yet",
            next_step="choose another -o, or pass --force (force=True) to replace the bundle there",
        )  # fmt: skip
    if output.is_symlink() or not output.is_dir() or (any(output.iterdir()) and not (output / MANIFEST).is_file()):
        raise OutputError(
            f"{output} is not a bundle, so --force does not replace it", where=str(output),
            expected="a bundle or an empty folder", next_step="choose another -o",
        )  # fmt: skip


@contextmanager
def _explained(output: Path) -> Iterator[None]:
    """Turn the disk's own errors into one that says where and what to do."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise OutputError(
            "the disk is full" if full else f"{output} cannot be written: {error.strerror or error}",
            where=str(error.filename or output),
            next_step="free some space or choose another -o; nothing was left behind" if full else "choose another -o",
        ) from error
    except Exception as error:
        # Libraries in native code report a full disk as text only.
        if type(error).__module__.startswith("torch2edge") or "No space left" not in str(error):
            raise
        raise OutputError(
            "the disk is full", where=str(output), next_step="free some space or choose another -o; nothing was left behind"
        ) from error


@dataclasses.dataclass(frozen=True, slots=True)
class Bundle:
    """An opened, verified bundle.

    Attributes:
        path: the folder.
        manifest: as on disk.
        target: "litert" or "cloud-tpu".
        signature: names, nesting, shapes and dtypes.
        arguments: weight names before the inputs (cloud-tpu).
        report: what parity found at the export, or None when it was not checked.
    """

    path: Path
    manifest: dict[str, Any]
    target: str
    signature: Signature
    arguments: tuple[str, ...]
    report: Report | None

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Bundle:
        """Verify format version, paths, sizes and hashes, and read the manifest.

        Raises:
            BundleVersionError: written by a newer torch2edge.
            BundleError: anything else that is wrong; all of it is listed.
        """
        folder = Path(path)
        manifest = _manifest(folder)
        _verify(folder, manifest["files"])
        try:
            signature = signature_from_json(manifest["signature"])
            return cls(folder, manifest, manifest["target"], signature, tuple(manifest["arguments"]), _report(folder))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BundleError(
                f"the manifest does not make sense: {type(error).__name__}: {error}", where=str(folder / MANIFEST),
                next_step="export the model again",
            ) from error  # fmt: skip

    def goldens(self) -> list[Golden]:
        """The golden cases, in order."""
        return [_golden(self.path, entry) for entry in self.manifest["goldens"]]

    def file(self, name: str) -> Path:
        """A file of the bundle by its name in the manifest.

        Raises:
            BundleError: no such file.
        """
        if name not in self.manifest["files"]:
            raise BundleError(f"the bundle has no {name}", where=str(self.path), expected=", ".join(self.manifest["files"]))
        return self.path / name


def _manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    if not path.is_file():
        raise BundleError(
            f"{folder} is not a bundle" if folder.exists() else f"{folder} does not exist", where=str(path),
            expected=MANIFEST, next_step="pass the folder that `torch2edge export -o` wrote",
        )  # fmt: skip
    try:
        manifest = json.loads(path.read_bytes())
        found = int(manifest["format_version"])
    except (ValueError, KeyError, TypeError) as error:
        raise BundleError(
            f"the manifest cannot be read: {error}", where=str(path), next_step="export the model again"
        ) from error
    if found > FORMAT_VERSION:
        raise BundleVersionError(
            "the bundle was written by a newer torch2edge", where=str(path), expected=f"format version <= {FORMAT_VERSION}",
            got=str(found), next_step="pip install --upgrade torch2edge",
        )  # fmt: skip
    missing = [k for k in KEYS if k not in manifest]
    if missing or not isinstance(manifest["files"], dict):
        raise BundleError("the manifest is incomplete", where=str(path), details=[f"missing: {k}" for k in missing])
    return dict(manifest)


def _verify(folder: Path, files: dict[str, Any]) -> None:
    wrong = []
    root = folder.resolve()
    for name, facts in files.items():
        parts = PurePosixPath(name)
        if parts.is_absolute() or ".." in parts.parts or not (folder / name).resolve().is_relative_to(root):
            wrong.append(f"{name}: leaves the folder")
        elif not (folder / name).is_file():
            wrong.append(f"{name}: missing")
        elif (size := (folder / name).stat().st_size) != facts.get("bytes"):
            wrong.append(f"{name}: expected {facts.get('bytes')} bytes, got {size}")
        elif _sha256(folder / name) != facts.get("sha256"):
            wrong.append(f"{name}: its content is not what was written (sha256 differs)")
    present = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if not p.is_dir() or p.is_symlink()}
    wrong += [f"{n}: not in the manifest" for n in sorted(present - set(files) - {MANIFEST})]
    if wrong:
        raise BundleError(
            f"the bundle is damaged: {len(wrong)} problem(s)", where=str(folder), details=wrong,
            next_step="copy it again, or export the model again",
        )  # fmt: skip


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _report(folder: Path) -> Report | None:
    path = folder / "reports" / "parity.json"
    if not path.is_file():
        return None
    from torch2edge.numerics.report import Report

    return Report.from_dict(json.loads(path.read_bytes()))


def signature_to_json(signature: Signature) -> dict[str, Any]:
    """For the manifest."""
    return dataclasses.asdict(signature)


def signature_from_json(data: dict[str, Any]) -> Signature:
    """The inverse of signature_to_json."""

    def spec(item: dict[str, Any]) -> TensorSpec:
        return TensorSpec(item["name"], tuple(item["shape"]), item["dtype"], item["stored"])

    return Signature(
        tuple(map(spec, data["inputs"])),
        tuple(map(spec, data["outputs"])),
        tuple(Parameter(p["name"], p["kind"], p["tree"]) for p in data["parameters"]),
        data["output_tree"],
        tuple(StateSpec(s["buffer"], spec(s["input"]), spec(s["output"])) for s in data["state"]),
    )


def write_goldens(folder: Path, goldens: Sequence[Golden]) -> list[dict[str, Any]]:
    """Write golden/NN-name.safetensors for each case; returns the entries for the manifest."""
    from safetensors.numpy import save_file

    (folder / "golden").mkdir(exist_ok=True)
    entries = []
    for number, golden in enumerate(goldens):
        name = f"golden/{number:02d}-{golden.name}.safetensors"
        parts = (("input", golden.inputs), ("output", golden.outputs), ("undecided", golden.undecided))
        save_file({f"{part}/{n}": _solid(a) for part, held in parts for n, a in held.items()}, folder / name)
        entries.append(
            {
                "name": golden.name,
                "kind": golden.kind,
                "file": name,
                "reset": golden.reset,
                "inputs": list(golden.inputs),
                "outputs": list(golden.outputs),
                "undecided": list(golden.undecided),
                "floors": {n: dataclasses.asdict(f) for n, f in golden.floors.items()},
            }
        )
    return entries


def _solid(array: Any) -> Any:
    import numpy as np

    return np.array(array, order="C", copy=not array.flags.c_contiguous)


def _golden(folder: Path, entry: dict[str, Any]) -> Golden:
    from safetensors.numpy import load_file

    held = load_file(folder / entry["file"])
    try:
        return Golden(
            entry["name"],
            entry["kind"],
            {n: held[f"input/{n}"] for n in entry["inputs"]},
            {n: held[f"output/{n}"] for n in entry["outputs"]},
            {n: Floor(**f) for n, f in entry["floors"].items()},
            {n: held[f"undecided/{n}"] for n in entry["undecided"]},
            entry["reset"],
        )
    except KeyError as error:
        raise BundleError(f"a golden case lacks {error}", where=entry["file"]) from error
