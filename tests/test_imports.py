"""What stays unloaded until it is needed: importing the package, and `--help` of every command."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import torch2edge
from torch2edge import cli, errors

ROOT = Path(torch2edge.__file__).parent.parent
HEAVY = (
    "torch",
    "jax",
    "jaxlib",
    "litert_torch",
    "ai_edge_litert",
    "numpy",
    "rich",
    "safetensors",
    "transformers",
)


def _loaded(code: str) -> list[str]:
    """Heavy packages in a fresh interpreter after `code`."""
    ask = (
        f"{code}\nimport sys, json\nsys.stderr.write(json.dumps([m for m in {HEAVY!r} if m in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", ask], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(done.stderr)
    return found


def test_this_way_of_looking_finds_what_is_loaded() -> None:
    assert _loaded("import numpy") == ["numpy"]


@pytest.mark.parametrize(
    "code",
    [
        "import torch2edge",
        "import torch2edge as t; t.errors.Torch2EdgeError; t.export; t.load; t.parity; t.runtimes",
        "from torch2edge import stages, errors, registry, tree, manifest, bundle, doctor, pipeline",
        "from torch2edge import cli; assert cli.main(['--help']) == 0",
        "from torch2edge import cli; assert cli.main(['--version']) == 0",
        "from torch2edge import cli; assert cli.main(['inspect', '/no/such/bundle']) == 2",
        *(f"from torch2edge import cli; assert cli.main(['{n}', '--help']) == 0" for n in cli._names()),
    ],
)
def test_nothing_heavy_is_loaded(code: str) -> None:
    # The inspect case prints its error on stderr, which is read here: send it elsewhere first.
    quiet = "import sys, io; kept = sys.stderr; sys.stderr = io.StringIO()\n"
    assert _loaded(f"{quiet}{code}\nsys.stderr = kept") == []


@pytest.mark.parametrize("name", ["", *cli._names()])
def test_help_answers_on_stdout_and_exits_0(name: str) -> None:
    words = [name, "--help"] if name else ["--help"]
    done = subprocess.run(
        [sys.executable, "-m", "torch2edge", *words], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert f"usage: torch2edge {name}".rstrip() in done.stdout
    if name:
        assert "--json" in done.stdout
        assert "--debug" in done.stdout
    else:
        assert all(n in done.stdout for n in cli._names())


def test_every_command_is_a_file_with_what_the_parser_needs() -> None:
    from importlib import import_module

    assert {"export", "parity", "run", "inspect", "runtimes", "doctor"} <= set(cli._names())
    for name in cli._names():
        module = import_module(f"torch2edge.cli.{name}")
        assert module.HELP
        assert module.run.__doc__
        assert callable(module.add_arguments)


def test_the_public_names_and_no_others() -> None:
    for name in torch2edge.__all__:
        assert name in dir(torch2edge)
        assert getattr(torch2edge, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'exprot'"):
        _ = torch2edge.exprot


def test_every_error_has_a_sentence_an_exit_code_and_one_shape() -> None:
    kinds = [
        k for k in vars(errors).values() if isinstance(k, type) and issubclass(k, errors.Torch2EdgeError)
    ]
    assert len(kinds) > 10
    for kind in kinds:
        error = kind("what", where="w", expected="e", got="g", next_step="n", details=["one", "two"])
        assert str(error).splitlines() == [
            "what", "  - one", "  - two", "  where: w", "  expected: e", "  got: g", "  next: n",
        ]  # fmt: skip
        assert error.exit_code in (1, 2, 3)
        assert error.log == ""
        assert "log" not in error.to_json()
        assert kind.__doc__
    assert errors.ParityError.exit_code == 1
    assert errors.MissingPartError.exit_code == 3
    assert errors.BundleVersionError("w").exit_code == 2
    assert str(errors.UsageError("only what")) == "only what"
