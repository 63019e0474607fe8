"""Is a .pt2 archive safe to open?  Answered without unpickling anything.

torch.export.load can run code from the file in several ways (read in torch 2.13): pickled weights,
constants and custom objects; sample inputs, which fall back to a full unpickler when the restricted one
refuses; compiled AOTInductor libraries; symbolic sizes, which go through sympy's eval; and call targets,
which are looked up by name anywhere under `torch`.  All of them are refused here, from the very records
that torch's own reader would use.
"""

from __future__ import annotations

import ast
import io
import json
import re
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch2edge.errors import SourceError

_CALLS = re.compile(
    r"^(torch\.ops\.[a-zA-Z]\w*\.([a-zA-Z]\w*|_[a-zA-Z]\w*|__i?(and|or|xor|lshift|rshift)__)(\.[a-zA-Z]\w*)?"
    r"|torch\.sym_\w+|torch\._sym_\w+|_operator\.\w+|math\.\w+)$"
)
_NO_CALLS = re.compile(
    r"^(_operator\.(methodcaller|call|attrgetter)|torch\.ops\.aten\.(from_file|save)(\.\w+)?)$"
)
_IMPORTS = re.compile(r"default_factory_module\W+(?!builtins\W|collections\W)(\w[\w.]*)|(__enum__)")
_SYMBOLIC = re.compile(
    r"^(Abs|Add|And|Eq|Equality|Ge|GreaterThan|Gt|Le|LessThan|Lt|Max|Min|Mul|Ne|Not|Or|Piecewise|Pow|Unequality"
    r"|Strict(Less|Greater)Than|Symbol|Integer|Float|Rational|ExprCondPair|ceiling|floor|sqrt"
    r"|(Floor|Clean|Ceil|Int|Python|Trunc|Round|Bitwise|Pow|Where|Mod|Identity|LShift|RShift|ToFloat)\w*)$"
)
_WORD = re.compile(r"^([a-zA-Z][a-zA-Z0-9_]*|[-+]?[0-9.]+(e[-+]?[0-9]+)?)$")
"""What torch writes between quotes: a symbol's name, or a number."""
_NODES = (
    *(
        ast.Expression,
        ast.BinOp,
        ast.UnaryOp,
        ast.Compare,
        ast.BoolOp,
        ast.Call,
        ast.keyword,
        ast.Tuple,
        ast.Load,
    ),
    *(ast.operator, ast.unaryop, ast.cmpop, ast.boolop),
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
            got=_OLD,
            next_step="save it again with a newer torch, or export from the module itself (file.py:factory)",
        )
    if not {"archive_format", "models/model.json"} <= names:
        raise SourceError(
            f"{path} is damaged, or a zip archive without a torch.export program",
            where=str(path),
            expected="models/model.json and archive_format, as torch.export.save writes them",
            got=", ".join(sorted(names)[:8]) or "an empty archive",
            next_step="save the model with torch.export.save; a checkpoint goes to --weights",
        )
    try:
        reader = torch._C.PyTorchFileReader(str(path))
        records = reader.get_all_records()
        _once(path, records)
        found = sorted(set(_unsafe(reader, records)))
    except (RuntimeError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SourceError(
            f"{path} is damaged",
            where=str(path),
            expected=_FORMAT,
            got=_first_line(error),
            next_step="copy it again, or save it again with torch.export.save",
        ) from error
    if found:
        raise SourceError(
            f"{path} holds pickled objects or code, and reading them could run it",
            where=str(path),
            details=found,
            expected=_FORMAT,
            got=f"{len(found)} finding(s) above",
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
            f"{path} is damaged or no .pt2 archive",
            where=str(path),
            expected=_FORMAT,
            got=f"{path.stat().st_size} bytes; {_first_line(error)}",
            next_step="copy it again, or save it again with torch.export.save",
        ) from error
    if damaged:
        raise SourceError(
            f"{path} is damaged",
            where=str(path),
            expected="the bytes that torch.export.save wrote",
            got=f"{damaged} fails its checksum",
            next_step="copy it again",
        )
    _once(path, names)
    return {n.partition("/")[2] or n for n in names} | {n for n in names if n == _OLD}


def _once(path: Path, names: list[str]) -> None:
    """Two readers, or one that is blind to case, could each see another record of the same name."""
    folded = [n.casefold() for n in names]
    twice = sorted(n for n, count in Counter(folded).items() if count > 1)
    if twice:
        raise SourceError(
            f"{path} holds records twice",
            where=str(path),
            details=twice,
            expected="each record once",
            got=f"{len(names)} records, {len(set(folded))} names",
            next_step="save it again with torch.export.save",
        )


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
            yield from (
                f"{name}: {why}" for why in _unsafe_program(json.loads(reader.get_record(name).decode()))
            )


def _unsafe_payload(reader: Any, name: str) -> Iterator[str]:
    base = name.rpartition("/")[2]
    if base.startswith(("custom_obj_", "opaque_obj_")) or base.endswith(".pt"):
        yield f"{name}: pickled object"
    if not base.endswith("_config.json"):
        return
    for key, facts in json.loads(reader.get_record(name).decode())["config"].items():
        if facts["use_pickle"] or facts["path_name"].startswith(("custom_obj_", "opaque_obj_")):
            yield f"{name}: {key} is stored as a pickle"
        elif facts["tensor_meta"]["device"]["type"] != "cpu":
            device = facts["tensor_meta"]["device"]["type"]
            yield f"{name}: {key} lies on {device} (move the program to the CPU before saving)"


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
    if isinstance(node, str) and (imports := _IMPORTS.search(node)):
        yield f"a nesting of inputs or outputs that imports {imports[1] or 'an enum'}"
    if not isinstance(node, dict):
        return
    target = node.get("target")
    if isinstance(target, str) and "inputs" in node and (not _CALLS.match(target) or _NO_CALLS.match(target)):
        yield f"a call to {target[:80]!r}, which is no operator"
    text = node.get("expr_str")
    if isinstance(text, str) and not _arithmetic(text):
        yield f"the size {text[:80]!r}, which is no arithmetic"
    for value in node.values():
        yield from _unsafe_program(value)


def _arithmetic(text: str) -> bool:
    """Numbers, names, operators, and calls of sympy's own functions; no attributes, indexing or free text."""
    try:
        parsed = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError):
        return False
    calls = {id(n.func) for n in ast.walk(parsed) if isinstance(n, ast.Call)}
    for node in ast.walk(parsed):
        if isinstance(node, ast.Constant):
            fine = isinstance(node.value, (int, float)) or bool(_WORD.match(str(node.value)))
        elif isinstance(node, ast.Name):
            fine = not node.id.startswith("_") and (id(node) not in calls or bool(_SYMBOLIC.match(node.id)))
        else:
            fine = isinstance(node, _NODES)
            fine = fine and not (isinstance(node, ast.Call) and not isinstance(node.func, ast.Name))
        if not fine:
            return False
    return True


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__
