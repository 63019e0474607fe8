"""The bundle's manifest: sealed by its own hash when written; when read, all problems are listed at once."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from torch2edge import tree
from torch2edge.errors import BundleError, BundleVersionError
from torch2edge.stages import Parameter, Signature, StateSpec, TensorSpec

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
SEAL = "manifest_sha256"
TARGETS = ("litert", "cloud-tpu")
KINDS = ("positional_only", "positional", "keyword", "var_positional", "var_keyword")
DTYPE = re.compile(r"bool|bfloat16|(u?int|float|complex)[1-9][0-9]*[a-z0-9_]*")

Check = Callable[[Any], bool]


def is_int(value: Any) -> bool:
    """A whole number >= 0; JSON's true and false are none."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(v, str) for v in value)


def _is(kind: type) -> Check:
    return lambda value: isinstance(value, kind)


KEYS: dict[str, tuple[str, Check]] = {
    "target": (f"one of {', '.join(TARGETS)}", lambda v: v in TARGETS),
    "signature": ("an object", _is(dict)),
    "arguments": ("a list of texts", _texts),
    "model": ("a text", _is(str)),
    "origin": ("a text", _is(str)),
    "versions": ("an object", _is(dict)),
    "created": ("a text", _is(str)),
    "parity": ("a text", _is(str)),
    "goldens": ("a list", _is(list)),
    "notes": ("a list of texts", _texts),
    "files": ("an object", _is(dict)),
}
"""Key -> what its value must be; other keys are free."""


def seal(data: dict[str, Any]) -> dict[str, Any]:
    """`data` with the hash of its own content; spaces and line ends of the file do not count."""
    bare = {k: v for k, v in data.items() if k != SEAL}
    # Through the text and back, so that tuples and lists hash alike.
    text = json.dumps(json.loads(json.dumps(bare)), sort_keys=True, separators=(",", ":"))
    return {**bare, SEAL: hashlib.sha256(text.encode()).hexdigest()}


def looks_like_one(folder: Path) -> bool:
    """Whether a folder holds a manifest of this kind (web apps have a manifest.json too)."""
    try:
        data = json.loads((folder / MANIFEST).read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(data, dict) and {"format_version", "signature", "files"} <= set(data)


def read(folder: Path) -> dict[str, Any]:
    """The manifest of a folder, its own content checked.

    Raises:
        BundleVersionError: a newer format.
        BundleError: no manifest, or one that is damaged or makes no sense; all problems are listed.
    """
    path = folder / MANIFEST
    again = "copy the bundle again, or export the model again"
    try:
        data = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        raise BundleError(
            f"{folder} is not a bundle" if folder.exists() else f"{folder} does not exist", where=str(path),
            expected=MANIFEST, next_step="pass the folder that `torch2edge export -o` wrote",
        ) from error  # fmt: skip
    except (OSError, ValueError, RecursionError) as error:
        raise BundleError(
            f"the manifest cannot be read: {error}", where=str(path), next_step=again
        ) from error
    if not isinstance(data, dict):
        raise BundleError(
            "the manifest is no JSON object", where=str(path), got=type(data).__name__, next_step=again
        )
    found: Any = data.get("format_version")
    if not is_int(found) or found < 1:
        raise BundleError(
            "the manifest has no usable format_version", where=str(path), expected="a whole number from 1",
            got=repr(found), next_step=again,
        )  # fmt: skip
    if found > FORMAT_VERSION:
        raise BundleVersionError(
            "the bundle was written by a newer torch2edge", where=str(path),
            expected=f"format version <= {FORMAT_VERSION}",
            got=str(found),
            next_step="pip install --upgrade torch2edge",
        )  # fmt: skip
    wrong = problems(data)
    if wrong:
        raise BundleError(
            f"the manifest is damaged: {len(wrong)} problem(s)",
            where=str(path),
            details=wrong,
            next_step=again,
        )
    return data


def problems(data: dict[str, Any]) -> list[str]:
    """Everything that is wrong with a manifest's content, files on disk aside."""
    wrong = [f"missing: {k}" for k in KEYS if k not in data]
    wrong += [
        f"{k}: expected {what}, got {_short(data[k])}"
        for k, (what, fits) in KEYS.items()
        if k in data and not fits(data[k])
    ]
    files = data.get("files")
    files = files if isinstance(files, dict) else {}
    for name, facts in files.items():
        sha, count = (facts.get("sha256"), facts.get("bytes")) if isinstance(facts, dict) else (None, None)
        if not (isinstance(sha, str) and is_int(count)):
            wrong.append(f"files.{name}: expected sha256 and bytes, got {_short(facts)}")
    if isinstance(data.get("model"), str) and data["model"] not in files:
        wrong.append(f"model: {data['model']!r} is not among the files")
    if isinstance(data.get("goldens"), list):
        for i, entry in enumerate(data["goldens"]):
            wrong += [f"goldens.{i}{w}" for w in _golden_problems(entry, files)]
    if isinstance(data.get("signature"), dict):
        wrong += [f"signature.{w}" for w in _signature_problems(data["signature"])]
    if SEAL not in data:
        wrong.append(f"missing: {SEAL}")
    elif seal(data)[SEAL] != data[SEAL]:
        wrong.append("its content is not what was written (its own sha256 differs)")
    return wrong


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _golden_problems(entry: Any, files: dict[str, Any]) -> list[str]:
    if not isinstance(entry, dict):
        return [f": expected an object, got {_short(entry)}"]
    wanted: dict[str, Check] = {
        "name": _is(str), "kind": _is(str), "file": _is(str), "reset": _is(bool),
        "inputs": _texts, "outputs": _texts, "undecided": _texts, "floors": _is(dict),
    }  # fmt: skip
    wrong = [f".{k}: {_short(entry.get(k))}" for k, fits in wanted.items() if not fits(entry.get(k))]
    if isinstance(entry.get("file"), str) and entry["file"] not in files:
        # A path that is not among the files was not hashed, and could lead out of the folder.
        wrong.append(f".file: {entry['file']!r} is not among the files")
    fields = {"max_abs", "rms", "scale", "source"}
    if isinstance(entry.get("floors"), dict):
        for name, floor in entry["floors"].items():
            if not isinstance(floor, dict) or set(floor) != fields:
                wrong.append(f".floors.{name}: expected {', '.join(sorted(fields))}, got {_short(floor)}")
    return wrong


def _signature_problems(data: dict[str, Any]) -> list[str]:
    wrong: list[str] = []

    def objects(key: str) -> list[dict[str, Any]]:
        items = data.get(key)
        if not isinstance(items, list) or not all(isinstance(i, dict) for i in items):
            wrong.append(f"{key}: expected a list of objects, got {_short(items)}")
            return []
        return items

    def spec(item: Any, path: str) -> None:
        item = item if isinstance(item, dict) else {}
        if not isinstance(item.get("name"), str) or not item["name"]:
            wrong.append(f"{path}.name: {_short(item.get('name'))}")
        if not isinstance(item.get("shape"), list) or not all(map(is_int, item["shape"])):
            wrong.append(f"{path}.shape: {_short(item.get('shape'))}")
        for key in ("dtype", "stored"):
            if not isinstance(item.get(key), str) or not DTYPE.fullmatch(item[key]):
                wrong.append(f"{path}.{key}: {_short(item.get(key))}")

    def unique(what: str, specs: Iterable[Any]) -> None:
        found = [s["name"] for s in specs if isinstance(s, dict) and isinstance(s.get("name"), str)]
        wrong.extend(f"{what} {n!r} appears twice" for n in sorted({n for n in found if found.count(n) > 1}))

    inputs, outputs = objects("inputs"), objects("outputs")
    parameters, states = objects("parameters"), objects("state")
    for key, items in (("inputs", inputs), ("outputs", outputs)):
        for i, item in enumerate(items):
            spec(item, f"{key}.{i}")
    for i, item in enumerate(states):
        if not isinstance(item.get("buffer"), str):
            wrong.append(f"state.{i}.buffer: {_short(item.get('buffer'))}")
        spec(item.get("input"), f"state.{i}.input")
        spec(item.get("output"), f"state.{i}.output")
    unique("input", [*inputs, *(s.get("input") for s in states)])
    unique("output", [*outputs, *(s.get("output") for s in states)])
    for i, item in enumerate(parameters):
        if not isinstance(item.get("name"), str) or item.get("kind") not in KINDS:
            wrong.append(f"parameters.{i}: {_short(item.get('name'))} {_short(item.get('kind'))}")
        if not isinstance(item.get("optional"), bool):
            wrong.append(f"parameters.{i}.optional: {_short(item.get('optional'))}")
        wrong += [f"parameters.{i}.tree{w}" for w in tree.problems(item.get("tree"), len(inputs))]
    wrong += [f"output_tree{w}" for w in tree.problems(data.get("output_tree"), len(outputs))]
    return wrong


def signature_to_json(signature: Signature) -> dict[str, Any]:
    """For the manifest."""
    return dataclasses.asdict(signature)


def signature_from_json(data: dict[str, Any]) -> Signature:
    """The inverse of signature_to_json, for data without problems."""

    def spec(item: dict[str, Any]) -> TensorSpec:
        return TensorSpec(item["name"], tuple(item["shape"]), item["dtype"], item["stored"])

    return Signature(
        tuple(map(spec, data["inputs"])),
        tuple(map(spec, data["outputs"])),
        tuple(Parameter(p["name"], p["kind"], p["tree"], p["optional"]) for p in data["parameters"]),
        data["output_tree"],
        tuple(StateSpec(s["buffer"], spec(s["input"]), spec(s["output"])) for s in data["state"]),
    )
