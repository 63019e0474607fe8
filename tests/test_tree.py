"""Nesting: taken apart and put together again, with names for the leaves."""

from __future__ import annotations

import collections
import dataclasses
import json
import re
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torch2edge import tree
from torch2edge.errors import InputError


class Leaf:
    """Stands for a tensor; equal to itself only."""


def is_leaf(value: Any) -> bool:
    return isinstance(value, Leaf)


@dataclass
class Result:
    scores: Any
    extra: Any = None


class Pair(NamedTuple):
    first: Any
    second: Any


KEYS = st.text(max_size=4) | st.integers(-3, 10)
CONSTANTS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
VALUES = st.recursive(
    CONSTANTS | st.builds(Leaf),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(KEYS, inner, max_size=3)
        | st.builds(Result, inner, inner)
        | st.builds(Pair, inner, inner)
    ),
    max_leaves=12,
)


def same(one: Any, other: Any) -> bool:
    """Equal in structure; classes made on the spot count by name and fields; leaves by identity."""
    if dataclasses.is_dataclass(one) and not isinstance(one, type):
        fields = [f.name for f in dataclasses.fields(one)]
        return (
            dataclasses.is_dataclass(other)
            and type(one).__name__ == type(other).__name__
            and [f.name for f in dataclasses.fields(other)] == fields
            and all(same(getattr(one, f), getattr(other, f)) for f in fields)
        )
    if isinstance(one, (list, tuple)):
        fits = getattr(one, "_fields", None) == getattr(other, "_fields", None)
        kind = type(one) is type(other) or (
            fits and hasattr(one, "_fields") and type(one).__name__ == type(other).__name__
        )
        return kind and len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return (
            isinstance(other, dict) and list(one) == list(other) and all(same(one[k], other[k]) for k in one)
        )
    return one is other or (not is_leaf(one) and type(one) is type(other) and bool(one == other))


@settings(deadline=None)
@given(VALUES)
def test_round_trip_through_json(value: Any) -> None:
    leaves, described = tree.flatten(value, is_leaf)
    read = json.loads(json.dumps(described))
    assert tree.problems(read, len(leaves)) == []
    assert same(value, tree.unflatten(read, leaves))


def test_the_comparison_of_this_file_can_fail() -> None:
    leaf = Leaf()
    assert not same([leaf], [Leaf()])
    assert not same([leaf], (leaf,))
    assert not same({"a": 1, "b": 2}, {"b": 2, "a": 1})
    assert not same(Result(1), Result(2))
    assert not same(Pair(1, 2), (1, 2))
    assert not same(True, 1)
    assert same(Result([leaf], Pair(1, {"k": leaf})), Result([leaf], Pair(1, {"k": leaf})))


@settings(deadline=None)
@given(VALUES)
def test_names_are_unique_and_valid_one_for_each_leaf(value: Any) -> None:
    leaves, described = tree.flatten(value, is_leaf)
    names = tree.names(described, prefix="output", single="output_0")
    assert len(names) == len(leaves) == len(set(names))
    assert all(re.fullmatch(r"[A-Za-z0-9_.]+", n) for n in names)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Leaf(), ["output_0"]),
        ((Leaf(), Leaf()), ["output_0", "output_1"]),
        ({"a": Leaf(), "b": [Leaf(), Leaf()]}, ["a", "b_0", "b_1"]),
        ({"a": [Leaf()], "a_0": Leaf()}, ["a_0", "a_0_2"]),
        ({"a-b": Leaf(), "a b": Leaf(), "a_b_2": Leaf()}, ["a_b", "a_b_2", "a_b_2_2"]),
        ({1: Leaf(), "1": Leaf()}, ["output_1", "1"]),
        ({"": Leaf()}, ["output_0"]),
        (Result(Leaf(), Pair(Leaf(), None)), ["scores", "extra_first"]),
        ((None, Leaf(), 3), ["output_1"]),
        ({}, []),
    ],
)
def test_names_are_the_users_words(value: Any, expected: list[str]) -> None:
    assert tree.names(tree.flatten(value, is_leaf)[1], prefix="output", single="output_0") == expected


def test_leaves_come_in_order_and_constants_are_none() -> None:
    a, b, c = Leaf(), Leaf(), Leaf()
    leaves, described = tree.flatten({"z": [a, 1, None], "a": (b, {"k": c})}, is_leaf)
    assert leaves == [a, b, c]
    assert tree.unflatten(described, [1.0, 2.0, 3.0]) == {"z": [1.0, 1, None], "a": (2.0, {"k": 3.0})}


def test_other_mappings_and_subclasses_come_back_as_plain_ones() -> None:
    leaf = Leaf()
    for value in (
        collections.OrderedDict(a=leaf),
        collections.defaultdict(Leaf, a=leaf),
        collections.UserDict(a=leaf),
    ):
        leaves, described = tree.flatten(value, is_leaf)
        assert tree.unflatten(described, leaves) == {"a": leaf}


def test_dataclasses_of_every_make() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Frozen:
        value: Any
        derived: Any = dataclasses.field(init=False, default=3)

    leaf = Leaf()
    leaves, described = tree.flatten(Frozen(value=leaf), is_leaf)
    made = tree.unflatten(described, leaves)
    assert (type(made).__name__, made.value, made.derived) == ("Frozen", leaf, 3)


def test_a_namedtuple_with_renamed_fields() -> None:
    renamed = collections.namedtuple("renamed", ["x", "class", "x"], rename=True)
    leaf = Leaf()
    leaves, described = tree.flatten(renamed(leaf, 1, 2), is_leaf)
    made = tree.unflatten(described, leaves)
    assert made._fields == ("x", "_1", "_2")
    assert made == (leaf, 1, 2)
    assert tree.problems(described, 1) == []


def test_transformers_style_outputs_that_are_both_mapping_and_dataclass() -> None:
    @dataclass
    class Output(collections.OrderedDict):  # type: ignore[type-arg]
        logits: Any = None
        loss: Any = None

    leaf = Leaf()
    leaves, described = tree.flatten(Output(logits=leaf), is_leaf)
    made = tree.unflatten(described, leaves)
    assert (made.logits, made.loss) == (leaf, None)


@pytest.mark.parametrize(
    ("value", "where", "got"),
    [
        ({"a": [1, {"b": {1, 2}}]}, "a.1.b", "set"),
        (Result(Pair(1, 1j)), "scores.second", "complex"),
        (b"raw", "the value itself", "bytes"),
        ({"a": {(1, 2): 3, None: 4, "fine": 5}}, "a", "(1, 2), None"),
        ([Leaf], "0", "type"),
        (Result, "the value itself", "type"),
    ],
)
def test_what_cannot_pass_is_named_with_its_path(value: Any, where: str, got: str) -> None:
    with pytest.raises(InputError) as caught:
        tree.flatten(value, is_leaf)
    assert (caught.value.where, caught.value.got) == (where, got)
    assert caught.value.expected
    assert caught.value.next_step


def test_a_value_that_contains_itself() -> None:
    endless: dict[str, Any] = {}
    endless["me"] = [endless]
    with pytest.raises(InputError, match="contains itself") as caught:
        tree.flatten(endless, is_leaf)
    assert caught.value.where.startswith("me.0.me.0")
    deep: Any = Leaf()
    for _ in range(tree.DEPTH):
        deep = [deep]
    assert len(tree.flatten(deep, is_leaf)[0]) == 1


GOOD = {"kind": "dict", "keys": ["a", 1], "items": [{"kind": "leaf", "index": 0}, {"kind": "none"}]}


@pytest.mark.parametrize(
    "bad",
    [
        None, [], "leaf", {}, {"kind": "set", "items": []}, {"kind": "leaf"}, {"kind": "leaf", "index": 1},
        {"kind": "leaf", "index": -1}, {"kind": "leaf", "index": True}, {"kind": "leaf", "index": "0"},
        {"kind": "const"}, {"kind": "const", "value": []}, {"kind": "list"}, {"kind": "list", "items": {}},
        {**GOOD, "keys": ["a"]}, {**GOOD, "keys": None}, {**GOOD, "keys": ["a", None]},
        {**GOOD, "items": [None, None]},
        {"kind": "namedtuple", "type": "P", "fields": ["a"], "items": []},
        {"kind": "namedtuple", "type": "P", "fields": ["a", "a"], "items": GOOD["items"]},
        {"kind": "dataclass", "type": "P", "fields": "ab", "items": GOOD["items"]},
        {"kind": "dataclass", "type": "P", "fields": ["a", "def"], "items": GOOD["items"]},
        {"kind": "dataclass", "type": "P", "fields": ["a", "b=print(1)"], "items": GOOD["items"]},
        {"kind": "dataclass", "type": "P(x)", "fields": ["a", "b"], "items": GOOD["items"]},
    ],
)  # fmt: skip
def test_a_description_from_a_file_that_makes_no_sense(bad: Any) -> None:
    assert tree.problems(GOOD, 1) == []
    assert tree.problems(bad, 1)
    assert tree.problems({"kind": "list", "items": [GOOD, bad, bad]}, 1)[0].startswith(".1")
