"""Adding by one file: names without importing, and no stand-in for an unknown name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import torch2edge
from torch2edge import registry
from torch2edge.errors import UsageError

FOLDER = Path(torch2edge.__file__).parent


def test_names_are_the_stems_of_public_files() -> None:
    names = registry.names("runtime")
    assert {"eager", "xla", "litert-cpu", "litert-reference"} <= set(names)
    assert names == sorted(names)
    assert not any(n.startswith(("_", "-")) for n in names)
    assert len(names) == len([p for p in (FOLDER / "runtime").glob("*.py") if not p.name.startswith("_")])


def test_a_new_file_is_a_new_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "room").mkdir()
    for name in ("new_one.py", "_private.py", "__init__.py", "notes.txt"):
        (tmp_path / "room" / name).write_text("raise RuntimeError('imported')")
    monkeypatch.setattr(registry, "__file__", str(tmp_path / "registry.py"))
    assert registry.names("room") == ["new-one"]
    assert registry.names("no_such_room") == []


def test_get_imports_the_module_and_no_other() -> None:
    code = (
        "import sys; from torch2edge import registry; registry.names('runtime');"
        "before = [m for m in sys.modules if m.startswith('torch2edge.runtime')];"
        "found = registry.get('runtime', 'litert-reference');"
        "after = sorted(m for m in sys.modules if m.startswith('torch2edge.runtime.') and '._' not in m);"
        "print(before, found.__name__, after)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=FOLDER.parent, capture_output=True, text=True, timeout=60
    )
    assert (
        done.stdout == "[] torch2edge.runtime.litert_reference ['torch2edge.runtime.litert_reference']\n"
    ), done.stderr


@pytest.mark.parametrize("name", registry.names("runtime"))
def test_every_runtime_has_what_the_room_asks_for(name: str) -> None:
    module = registry.get("runtime", name)
    assert isinstance(module.TARGETS, tuple)
    assert set(module.TARGETS) <= {"litert", "cloud-tpu"}
    assert isinstance(module.STAGE, str)
    assert callable(module.available)
    assert callable(module.open)


@pytest.mark.parametrize(
    "name", ["litert-gpuu", "", "_runner", "-runner", "__init__", "litert_cpu", "../cli", "eager.py", "os"]
)
def test_an_unknown_name_lists_the_known_ones(name: str) -> None:
    with pytest.raises(UsageError, match="unknown runtime") as caught:
        registry.get("runtime", name)
    assert caught.value.expected == ", ".join(registry.names("runtime"))


def test_a_near_name_is_suggested_and_not_taken() -> None:
    with pytest.raises(UsageError) as caught:
        registry.get("runtime", "litert-reference-")
    assert caught.value.next_step == "did you mean 'litert-reference'?"
    with pytest.raises(UsageError) as caught:
        registry.get("runtime", "qqqqqq")
    assert "did you mean" not in caught.value.next_step
