"""Is a .pt2 archive safe to open?  Answered without unpickling anything.

torch.export.load runs code from the file in more ways than one (read in torch 2.13): pickled weights, constants
and custom objects; sample inputs, which fall back to a full unpickler when the restricted one refuses; compiled
AOTInductor libraries; symbolic sizes, which go through sympy's eval; and call targets looked up by name anywhere
under `torch`.  All of them are refused here, from the very records that torch's own reader would use.
"""

from __future__ import annotations

import ast
import io
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch2edge.errors import SourceError

_CALLS = re.compile(r"^(torch\.ops\.\w+(\.\w+)+|torch\.sym_\w+|torch\._sym_\w+|_operator\.\w+|math\.\w+)$")
_OPERATORS_THAT_CALL = {"_operator.methodcaller", "_operator.call", "_operator.attrgetter", "torch.sym_fresh_size"}
_SYMBOLIC = re.compile(
    r"^(Abs|And|Eq|Ge|Gt|Le|Lt|Max|Min|Mod|Ne|Not|Or|Piecewise|Pow|Integer|Float|Rational|ceiling|floor|sqrt|zoo|oo"
    r"|(Floor|Clean|Ceil|Int|Float|Python|Trunc|Round|Is|Op|Bitwise|Pow|Where|Mod|Identity|LShift|RShift|ToFloat)\w*)$"
)
_OLD = "serialized_exported_program.json"
_FORMAT = "torch.export program without pickled objects or compiled code"


def check(path: Path) -> None:
    """Refuse an archive that is damaged, or that could run code when it is read.

    Raises:
        SourceError: every finding is listed.
    """
    import torch

    names = _names(path)
    if _OLD in names:
        raise SourceError(
            f"{path} has the format of torch 2.7 or older, which is read by unpickling",
            where=str(path),
            expected="the archive format of torch 2.8 or newer",
            next_step="save it again with a newer torch, or export from the module itself (file.py:factory)",
        )
    try:
        reader = torch._C.PyTorchFileReader(str(path))
        records = reader.get_all_records()
        is_program = "archive_format" in records and reader.get_record("archive_format") == b"pt2"
        is_program = is_program and "models/model.json" in records
        found = sorted(set(_unsafe(reader, records))) if is_program else []
    except (RuntimeError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SourceError(
            f"{path} is damaged: {_first_line(error)}",
            where=str(path),
            expected=_FORMAT,
            next_step="copy it again, or save it again with torch.export.save",
        ) from error
    if not is_program:
        raise SourceError(
            f"{path} is a zip archive, but holds no torch.export program",
            where=str(path),
            expected="models/model.json and archive_format, as torch.export.save writes them",
            got=", ".join(sorted(names)[:8]) or "an empty archive",
            next_step="save the model with torch.export.save; a checkpoint goes to --weights",
        )
    if found:
        raise SourceError(
            f"{path} holds pickled objects or code, and reading them could run it",
            where=str(path),
            details=found,
            expected=_FORMAT,
            next_step="export from the module itself (file.py:factory), which you trust",
        )


def _names(path: Path) -> set[str]:
    """Record names; checksums are verified here because torch's reader is built without that check."""
    damaged: str | None
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError, EOFError, NotImplementedError, RuntimeError) as error:
        raise SourceError(
            f"{path} is damaged or no .pt2 archive: {_first_line(error)}",
            where=str(path),
            expected=_FORMAT,
            got=f"{path.stat().st_size} bytes",
            next_step="copy it again, or save it again with torch.export.save",
        ) from error
    if damaged:
        raise SourceError(
            f"{path} is damaged: {damaged} fails its checksum",
            where=str(path),
            expected="the bytes that torch.export.save wrote",
            next_step="copy it again",
        )
    folded = [n.casefold() for n in names]
    twice = sorted({n for n in folded if folded.count(n) > 1}) if len(set(folded)) < len(folded) else []
    if twice:  # two readers could each see another one of them
        raise SourceError(f"{path} holds records twice", where=str(path), details=twice, next_step="save it again with torch.export.save")
    return {n.partition("/")[2] or n for n in names} | {n for n in names if n == _OLD}


def _unsafe(reader: Any, records: list[str]) -> Iterator[str]:
    for name in records:
        folder = name.casefold()
        if folder.startswith("data/aotinductor/") or folder.endswith((".so", ".dll", ".dylib")):
            yield f"{name}: compiled code"
        elif folder.startswith(("data/weights/", "data/constants/")):
            yield from _unsafe_payload(reader, name)
        elif folder.startswith("data/sample_inputs/"):
            yield from _unsafe_pickle(name, reader.get_record(name))
        elif folder.startswith("models/"):
            yield from (f"{name}: {why}" for why in _unsafe_program(json.loads(reader.get_record(name))))


def _unsafe_payload(reader: Any, name: str) -> Iterator[str]:
    base = name.rpartition("/")[2]
    if base.startswith(("custom_obj_", "opaque_obj_")) or base.endswith(".pt"):
        yield f"{name}: pickled object"
    if not base.endswith("_config.json"):
        return
    for key, facts in json.loads(reader.get_record(name))["config"].items():
        if facts["use_pickle"] or facts["path_name"].startswith(("custom_obj_", "opaque_obj_")):
            yield f"{name}: {key} is stored as a pickle"
        elif facts["tensor_meta"]["device"]["type"] != "cpu":
            yield f"{name}: {key} lies on {facts['tensor_meta']['device']['type']} (move the program to the CPU before saving)"


def _unsafe_pickle(name: str, data: bytes) -> Iterator[str]:
    """torch's reader would fall back to a full unpickler; the restricted one must be enough."""
    import pickle

    import torch

    if not data:
        return
    try:
        torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        asked = re.search(r"GLOBAL ([\w.]+)", str(error))
        yield f"{name}: example inputs that need {asked[1] if asked else 'a full unpickler'}"


def _unsafe_program(node: Any) -> Iterator[str]:
    """Call targets outside of operators, and symbolic sizes that are more than arithmetic."""
    if isinstance(node, list):
        for item in node:
            yield from _unsafe_program(item)
    if not isinstance(node, dict):
        return
    target = node.get("target")
    if isinstance(target, str) and "inputs" in node and (not _CALLS.match(target) or target in _OPERATORS_THAT_CALL):
        yield f"a call to {target[:80]!r}, which is no operator"
    text = node.get("expr_str")
    if isinstance(text, str) and not _arithmetic(text):
        yield f"the size {text[:80]!r}, which is no arithmetic"
    for value in node.values():
        yield from _unsafe_program(value)


def _arithmetic(text: str) -> bool:
    """Numbers, plain names, operators, and calls of sympy's own functions; no strings, attributes or indexing."""
    try:
        parsed = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError):
        return False
    calls = {id(n.func) for n in ast.walk(parsed) if isinstance(n, ast.Call)}
    for node in ast.walk(parsed):
        if isinstance(node, ast.Constant):
            fine = isinstance(node.value, (int, float))
        elif isinstance(node, ast.Name):
            fine = not node.id.startswith("_") and (id(node) not in calls or bool(_SYMBOLIC.match(node.id)))
        else:
            fine = isinstance(
                node,
                (ast.Expression, ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.Call, ast.Tuple, ast.Load)
                + (ast.operator, ast.unaryop, ast.cmpop, ast.boolop),
            )
            fine = fine and not (isinstance(node, ast.Call) and not isinstance(node.func, ast.Name))
        if not fine:
            return False
    return True


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__
