"""How values nest: taken apart into flat leaves and a JSON description, and put together again.

Putting together never imports the user's code: a dataclass or namedtuple comes back as a class of the same
name and fields, made on the spot.
"""

from __future__ import annotations

import collections
import dataclasses
import re
from collections.abc import Callable, Mapping
from functools import cache
from keyword import iskeyword
from typing import Any

from torch2edge.errors import InputError

Tree = dict[str, Any]

DEPTH = 100
"""More levels than this mean a value that contains itself."""


def flatten(value: Any, is_leaf: Callable[[Any], bool]) -> tuple[list[Any], Tree]:
    """Leaves in order, and the nesting with indices into them.

    Raises:
        InputError: something that is neither leaf, constant nor known nesting, a dict key that is neither
            text nor whole number, or a value that contains itself; its path is named.
    """
    leaves: list[Any] = []
    return leaves, _describe(value, is_leaf, leaves, "", 0)


def _describe(value: Any, is_leaf: Callable[[Any], bool], leaves: list[Any], path: str, depth: int) -> Tree:
    def items(pairs: list[tuple[Any, Any]]) -> list[Tree]:
        return [_describe(v, is_leaf, leaves, f"{path}.{k}" if path else str(k), depth + 1) for k, v in pairs]

    if depth > DEPTH:
        raise InputError(
            "a value is nested too deeply, or contains itself",
            where=path[:60] + "...",
            expected=f"at most {DEPTH} levels",
            next_step="flatten it before it enters or leaves forward",
        )

    if is_leaf(value):
        leaves.append(value)
        return {"kind": "leaf", "index": len(leaves) - 1}
    if value is None:
        return {"kind": "none"}
    if isinstance(value, (bool, int, float, str)):
        return {"kind": "const", "value": value}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [f.name for f in dataclasses.fields(value)]
        pairs = [(f, getattr(value, f)) for f in fields]
        return {"kind": "dataclass", "type": type(value).__name__, "fields": fields, "items": items(pairs)}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        pairs = list(zip(value._fields, value, strict=True))
        return {
            "kind": "namedtuple",
            "type": type(value).__name__,
            "fields": list(value._fields),
            "items": items(pairs),
        }
    if isinstance(value, (list, tuple)):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return {"kind": kind, "items": items(list(enumerate(value)))}
    if isinstance(value, Mapping):
        foreign = [repr(k) for k in value if not isinstance(k, (str, int))]
        if foreign:
            raise InputError(
                "a dict with such keys cannot pass the boundary of an exported model",
                where=path or "the value itself",
                expected="keys that are texts or whole numbers",
                got=", ".join(foreign),
                next_step="give the keys names, str(key) for instance",
            )
        return {"kind": "dict", "keys": list(value), "items": items(list(value.items()))}
    raise InputError(
        f"a {type(value).__name__} cannot pass the boundary of an exported model",
        where=path or "the value itself",
        expected="tensors, numbers, strings, None, lists, tuples, dicts, namedtuples or dataclasses of them",
        got=type(value).__name__,
        next_step="turn it into one of those before it enters or leaves forward",
    )


def unflatten(tree: Tree, leaves: list[Any]) -> Any:
    """The value that `tree` describes, with `leaves` in its places."""
    kind = tree["kind"]
    if kind == "leaf":
        return leaves[tree["index"]]
    if kind == "none":
        return None
    if kind == "const":
        return tree["value"]
    items = [unflatten(item, leaves) for item in tree["items"]]
    if kind == "list":
        return items
    if kind == "tuple":
        return tuple(items)
    if kind == "dict":
        return dict(zip(tree["keys"], items, strict=True))
    return _made(kind, tree["type"], tuple(tree["fields"]))(*items)


@cache
def _made(kind: str, name: str, fields: tuple[str, ...]) -> Any:
    if kind == "namedtuple":
        # rename: a user's namedtuple made with rename=True has fields "_1", which are refused otherwise.
        return collections.namedtuple(name, fields, rename=True)  # the fields are known at run time only
    return dataclasses.make_dataclass(name, fields)


def problems(tree: Any, leaves: int, path: str = "") -> list[str]:
    """What is wrong with a description that came from a file; [] when unflatten can take it.

    Args:
        tree: the nesting.
        leaves: how many leaves there are.
        path: of this node, for the messages.
    """
    if not isinstance(tree, dict):
        return [f"{path}: expected an object, got {type(tree).__name__}"]
    kind = tree.get("kind")
    if kind == "leaf":
        index = tree.get("index")
        fits = isinstance(index, int) and not isinstance(index, bool) and 0 <= index < leaves
        return [] if fits else [f"{path}: index {index!r} of {leaves} tensors"]
    if kind == "none":
        return []
    if kind == "const":
        fits = isinstance(tree.get("value"), (bool, int, float, str))
        return [] if fits else [f"{path}: constant {tree.get('value')!r}"]
    items = tree.get("items")
    if kind not in ("list", "tuple", "dict", "namedtuple", "dataclass") or not isinstance(items, list):
        return [f"{path}: kind {kind!r} with items of type {type(items).__name__}"]
    wrong = [w for i, item in enumerate(items) for w in problems(item, leaves, f"{path}.{i}")]
    if kind == "dict":
        keys = tree.get("keys")
        fits = (
            isinstance(keys, list)
            and len(keys) == len(items)
            and all(isinstance(k, (str, int)) for k in keys)
        )
        return wrong if fits else [*wrong, f"{path}: keys {keys!r} for {len(items)} items"]
    if kind in ("namedtuple", "dataclass"):
        fields, name = tree.get("fields"), tree.get("type")
        words = [name, *fields] if isinstance(fields, list) else []
        fits = len(words) == len(items) + 1 and len({str(w) for w in words[1:]}) == len(items)
        fits = fits and all(isinstance(w, str) and w.isidentifier() and not iskeyword(w) for w in words)
        return wrong if fits else [*wrong, f"{path}: {name!r} with fields {fields!r} for {len(items)} items"]
    return wrong


def names(tree: Tree, prefix: str, single: str) -> list[str]:
    """A unique name for each leaf, in order: keys, fields and positions joined with "_".

    Args:
        tree: the nesting.
        prefix: put before a position at the top ("output" gives output_0).
        single: name of a bare leaf.
    """
    found: list[str] = []
    _walk(tree, [], prefix, single, found)
    taken: set[str] = set()
    unique = []
    for name in found:
        candidate, n = name, 2
        while candidate in taken:
            candidate, n = f"{name}_{n}", n + 1
        taken.add(candidate)
        unique.append(candidate)
    return unique


def _walk(tree: Tree, path: list[str], prefix: str, single: str, found: list[str]) -> None:
    if tree["kind"] == "leaf":
        found.append(re.sub(r"[^A-Za-z0-9_.]", "_", "_".join(path)) or single)
        return
    labels = tree.get("keys") or tree.get("fields") or range(len(tree.get("items", ())))
    for label, item in zip(labels, tree.get("items", ()), strict=True):
        top = [prefix] if not path and prefix and isinstance(label, int) else []
        _walk(item, [*path, *top, str(label)], prefix, single, found)
