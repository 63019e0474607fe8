"""The bundle: a folder with manifest, payload, golden cases and reports; written in one go or not at all."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from torch2edge import manifest as manifests
from torch2edge.errors import BundleError, OutputError, Torch2EdgeError
from torch2edge.manifest import FORMAT_VERSION, MANIFEST
from torch2edge.manifest import signature_from_json as signature_from_json
from torch2edge.manifest import signature_to_json as signature_to_json
from torch2edge.stages import Floor, Golden, Signature

if TYPE_CHECKING:
    from torch2edge.numerics.report import Report

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
BROKEN = (errno.EIO, errno.EROFS)


class Staging:
    """A bundle in the making, in a temporary folder beside its place.

    Attributes:
        path: where to write.
        output: where it will stand.
    """

    def __init__(self, path: Path, output: Path, force: bool) -> None:
        self.path, self.output, self._force = path, output, force

    def commit(self, manifest: dict[str, Any]) -> None:
        """Hash every file, write the sealed manifest, and put the folder in its place by a rename.

        Raises:
            OutputError: the place was taken meanwhile, or the disk is full.
        """
        with _explained(self.output, self.path):
            files = {}
            for path in sorted(p for p in self.path.rglob("*") if p.is_file() and p != self.path / MANIFEST):
                name = path.relative_to(self.path).as_posix()
                files[name] = {"sha256": _sha256(path), "bytes": path.stat().st_size}
            data = manifests.seal({"format_version": FORMAT_VERSION, **manifest, "files": files})
            with (self.path / MANIFEST).open("w") as file:
                file.write(json.dumps(data, indent=1))
                file.flush()
                os.fsync(file.fileno())
            self._place()

    def _place(self) -> None:
        _check_place(self.output, self._force)
        old = _old(self.path)
        try:
            if self.output.exists():
                os.rename(self.output, old)
            os.rename(self.path, self.output)
        except BaseException:  # Ctrl-C between the two included
            if old.exists() and not self.output.exists():
                os.rename(old, self.output)
            raise
        shutil.rmtree(old, ignore_errors=True)


def _old(path: Path) -> Path:
    return path.with_suffix(".old")


@contextmanager
def staging(output: Path, *, force: bool = False) -> Iterator[Staging]:
    """A temporary sibling of `output`; gone on any error, Ctrl-C included, with the parents made for it.

    Raises:
        OutputError: `output` stands already, or its parent cannot be written.
    """
    output = Path(os.path.abspath(output))
    # The name is random: what a killed run left behind is never in the way.
    path = output.parent / f".{output.name[:100]}.{secrets.token_hex(4)}.partial"
    made: list[Path] = []
    try:
        with _explained(output, output.parent):
            _check_place(output, force)
            for parent in [output.parent, *output.parent.parents]:
                if parent.exists():
                    break
                made.append(parent)
            output.parent.mkdir(parents=True, exist_ok=True)
            path.mkdir()
        with _explained(output, path):
            yield Staging(path, output, force)
    finally:
        shutil.rmtree(path, ignore_errors=True)
        if os.path.exists(output):  # never the only copy; False for a name no disk takes
            shutil.rmtree(_old(path), ignore_errors=True)
        for parent in made:
            with suppress(OSError):  # holds something
                parent.rmdir()


def _check_place(output: Path, force: bool) -> None:
    if not output.exists() and not output.is_symlink():
        return
    if not force:
        raise OutputError(
            f"{output} exists already", where=str(output), expected="a folder that does not exist yet",
            next_step="choose another -o, or pass --force (force=True) to replace the bundle there",
        )  # fmt: skip
    foreign = output.is_symlink() or not output.is_dir()
    if foreign or (any(output.iterdir()) and not manifests.looks_like_one(output)):
        raise OutputError(
            f"{output} is not a bundle, so --force does not replace it", where=str(output),
            expected="a bundle or an empty folder", next_step="choose another -o, or remove it yourself",
        )  # fmt: skip


@contextmanager
def _explained(output: Path, inside: Path) -> Iterator[None]:
    """Turn the disk's own errors into one that says where and what to do.

    An error of the disk about a file that is not `inside` is not the output's: it passes unchanged.
    """
    try:
        yield
    except OSError as error:
        files = (n for n in (error.filename, error.filename2) if isinstance(n, (str, bytes, os.PathLike)))
        places = [Path(os.path.abspath(os.fsdecode(n))) for n in files]
        ours = any(p.is_relative_to(inside) or p in (output, *output.parents) for p in places)
        if error.errno in FULL:
            raise _full(output, str(error.filename or output)) from error
        if not ours and error.errno not in BROKEN:
            raise
        raise OutputError(
            f"{output} cannot be written: {error.strerror or error}", where=str(error.filename or output),
            expected="a place that can be written", next_step="choose another -o",
        ) from error  # fmt: skip
    except Exception as error:
        # Libraries in native code, and workers, report a full disk as text only.
        texts = [os.strerror(n) for n in FULL]
        if isinstance(error, OutputError) or not any(t in str(error) for t in texts):
            raise
        where = error.where if isinstance(error, Torch2EdgeError) and error.where else str(output)
        raise _full(output, where) from error


def _full(output: Path, where: str) -> OutputError:
    return OutputError(
        f"the disk is full, or a file may not grow so large: {output} was not written", where=where,
        next_step="free some space, or choose another -o; nothing was left behind",
    )  # fmt: skip


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
        manifest = manifests.read(folder)
        _verify(folder, manifest["files"])
        try:
            report = _report(folder)
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise BundleError(
                f"the parity report makes no sense: {type(error).__name__}: {error}",
                where=str(folder / "reports" / "parity.json"), next_step="export the model again",
            ) from error  # fmt: skip
        signature = signature_from_json(manifest["signature"])
        return cls(folder, manifest, manifest["target"], signature, tuple(manifest["arguments"]), report)

    def goldens(self) -> list[Golden]:
        """The golden cases, in order."""
        return [_golden(self.path, entry) for entry in self.manifest["goldens"]]

    def file(self, name: str) -> Path:
        """A file of the bundle by its name in the manifest.

        Raises:
            BundleError: no such file.
        """
        if name not in self.manifest["files"]:
            raise BundleError(
                f"the bundle has no {name}", where=str(self.path), expected=", ".join(self.manifest["files"])
            )
        return self.path / name


def _verify(folder: Path, files: dict[str, Any]) -> None:
    """Compare every file with the manifest, and refuse what is not in it or leads out of the folder."""
    root = folder.resolve()
    wrong = [] if (folder / MANIFEST).resolve().is_relative_to(root) else [f"{MANIFEST}: leaves the folder"]
    for name, facts in files.items():
        try:
            problem = _problem(folder, root, name, facts)
        except (OSError, ValueError) as error:  # a name that no disk can hold, an unreadable file
            problem = str(error)
        wrong += [f"{name}: {problem}"] if problem else []
    present = [p for p in folder.rglob("*") if not p.is_dir() or p.is_symlink()]
    foreign = {p.relative_to(folder).as_posix() for p in present} - set(files) - {MANIFEST}
    wrong += [f"{n}: not in the manifest" for n in sorted(foreign)]
    if wrong:
        raise BundleError(
            f"the bundle is damaged: {len(wrong)} problem(s)", where=str(folder), details=wrong,
            next_step="copy it again, or export the model again",
        )  # fmt: skip


def _problem(folder: Path, root: Path, name: str, facts: dict[str, Any]) -> str:
    parts, path = PurePosixPath(name), folder / name
    if parts.is_absolute() or ".." in parts.parts or not path.resolve().is_relative_to(root):
        return "leaves the folder"
    if not path.is_file():
        return "missing"
    if (size := path.stat().st_size) != facts["bytes"]:
        return f"expected {facts['bytes']} bytes, got {size}"
    if _sha256(path) != facts["sha256"]:
        return "its content is not what was written (sha256 differs)"
    return ""


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _report(folder: Path) -> Report | None:
    path = folder / "reports" / "parity.json"
    if not path.is_file():
        return None
    from torch2edge.numerics.report import Report

    return Report.from_dict(json.loads(path.read_bytes()))


def write_goldens(folder: Path, goldens: Sequence[Golden]) -> list[dict[str, Any]]:
    """Write golden/NN-name.safetensors for each case; returns the entries for the manifest."""
    from safetensors.numpy import save_file

    (folder / "golden").mkdir(exist_ok=True)
    entries = []
    for number, golden in enumerate(goldens):
        stem = re.sub(r"[^A-Za-z0-9_-]", "_", golden.name)
        name = f"golden/{number:02d}-{stem}.safetensors"
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
    """C order: safetensors writes the memory of a turned array as it lies."""
    import numpy as np

    return np.asarray(array, order="C")


def _golden(folder: Path, entry: dict[str, Any]) -> Golden:
    try:
        held = _arrays((folder / entry["file"]).read_bytes())
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
        raise BundleError(
            f"a golden case lacks {error}", where=entry["file"], next_step="export the model again"
        ) from error
    except (OSError, ValueError, TypeError) as error:
        raise BundleError(
            f"a golden case cannot be read: {error}", where=entry["file"], next_step="export the model again"
        ) from error


DTYPES = {
    "BOOL": "bool", "I8": "int8", "I16": "int16", "I32": "int32", "I64": "int64",
    "U8": "uint8", "U16": "uint16", "U32": "uint32", "U64": "uint64",
    "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64", "C64": "complex64",
}  # fmt: skip
"""safetensors' words; its own numpy reader (0.8) does not know bfloat16, so goldens are read here."""


def _arrays(raw: bytes) -> dict[str, Any]:
    import ml_dtypes
    import numpy as np
    from safetensors import SafetensorError, deserialize

    try:
        listed = deserialize(raw)  # type: ignore[no-untyped-call]
    except SafetensorError as error:
        raise ValueError(str(error)) from error
    arrays = {}
    for name, held in listed:
        word = DTYPES.get(held["dtype"])
        if word is None:
            raise ValueError(f"{name} has the dtype {held['dtype']}")
        dtype = np.dtype(ml_dtypes.bfloat16 if word == "bfloat16" else word)
        arrays[name] = np.frombuffer(held["data"], dtype=dtype).reshape(held["shape"])
    return arrays
