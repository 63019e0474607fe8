"""README.md keeps its word: its Python runs, its commands parse, its map is of this tree."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import demo
from torch2edge import cli

ROOT = Path(__file__).resolve().parent.parent.parent
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.real
def test_the_python_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(code, "README.md", "exec"), names)
    assert names["y"].shape == (1, 10)
    assert names["report"].passed and (tmp_path / "parity.json").is_file()


def test_each_command_exists_with_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    lines = re.findall(r"^\$ torch2edge (.*)$", TEXT, re.MULTILINE)
    assert len(lines) >= 4
    for line in lines:
        command, *words = line.split()
        assert cli.main([command, "--help"]) == 0
        shown = capsys.readouterr().out
        missing = [w for w in words if w.startswith("-") and not re.search(rf"(?<!\S){w}\b", shown)]
        assert not missing, line
    assert cli.main(["no-such-command", "--help"]) == 2  # negative control


def test_the_map_is_of_this_tree() -> None:
    tree = TEXT.partition("## The map")[2]
    folder, seen = ROOT, 0
    for indent, words in re.findall(r"^( {4,6})(\S.*?)(?:  +.*)?$", tree, re.MULTILINE):
        for name in re.findall(r"[\w.]+\.py|\w+/", words):
            base = ROOT if len(indent) == 4 else folder
            assert (base / name).exists(), name
            folder = ROOT / name if len(indent) == 4 else folder
            seen += 1
    assert seen >= 12


def test_make_targets_that_are_named_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    named = set(re.findall(r"make (\w+)", TEXT)) | set(re.findall(r"^make (\w+)", TEXT, re.MULTILINE))
    assert {"demo", "test", "setup", "readme"} <= named
    assert not [t for t in named if not re.search(rf"^{t}:", makefile, re.MULTILINE)]


def test_the_demo_block_is_there_once() -> None:
    assert TEXT.count(demo.BEGIN) == TEXT.count(demo.END) == 1
    block = TEXT.partition(demo.BEGIN)[2].partition(demo.END)[0]
    assert "$ make demo" in block and "litert-cpu: largest difference from eager" in block
