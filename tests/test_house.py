"""What is written in two places says the same: versions, ranges, pins, licence."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

import torch2edge
from torch2edge.doctor import PARTS

ROOT = Path(__file__).resolve().parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
NEEDED = [Requirement(text) for text in PROJECT["project"]["dependencies"]]
OPTIONAL = PROJECT["project"]["optional-dependencies"]
EXTRAS = [Requirement(text) for text in (*OPTIONAL["tpu"], *OPTIONAL["tensorflow"])]
GROUPS = [Requirement(text) for group in PROJECT["dependency-groups"].values() for text in group]


def pins() -> dict[str, str]:
    """Package -> exact version, of constraints.txt."""
    found: dict[str, str] = {}
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            name, exact, version = line.partition("==")
            assert exact and re.fullmatch(r"[0-9][\w.]*", version), line
            found[canonicalize_name(name)] = version
    return found


def test_the_version_is_written_once() -> None:
    assert PROJECT["project"]["version"] == torch2edge.__version__


@pytest.mark.parametrize("requirement", [*NEEDED, *GROUPS], ids=str)
def test_what_is_needed_is_pinned_within_its_range(requirement: Requirement) -> None:
    assert requirement.specifier.contains(pins()[canonicalize_name(requirement.name)])


def test_the_doctor_looks_for_the_ranges_of_the_project() -> None:
    ranges = {canonicalize_name(r.name): r.specifier for r in [*NEEDED, *EXTRAS]}
    looked_for = {canonicalize_name(p.name): SpecifierSet(p.wanted) for p in PARTS}
    assert {n: s for n, s in looked_for.items() if n in ranges and s != ranges[n]} == {}
    assert {"torch", "litert-torch", "ai-edge-litert", "ai-edge-quantizer", "jax", "jaxlib"} <= set(
        looked_for
    )


def test_only_doctors_required_parts_are_dependencies() -> None:
    needed = {canonicalize_name(r.name) for r in NEEDED}
    assert {canonicalize_name(p.name) for p in PARTS if p.required} <= needed
    assert not {canonicalize_name(p.name) for p in PARTS if not p.required} & needed


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt", "Makefile", ".ci/run"])
def test_no_package_index_is_named(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert not re.search(r"https?://|index-url|find-links|file:", text)


def test_the_licence_is_the_one_that_is_named() -> None:
    assert PROJECT["project"]["license"] == "Apache-2.0"
    assert "Apache License" in (ROOT / "LICENSE").read_text(encoding="utf-8")
