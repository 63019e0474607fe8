"""What all tests share: quiet and offline, the slow ones last, and each sample exported once a session."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from torch2edge.bundle import Bundle

# Before any library is imported: no test asks the network for a model or forks under tokenizer threads.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

ROOT = Path(__file__).resolve().parent.parent
TARGETS = ("litert", "cloud-tpu")

Exported = Callable[[str], "dict[str, Bundle]"]
"""Sample name ("digits_cnn") -> target -> bundle."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever uses an exported sample is `real`; real tests run last: a small fault shows in seconds."""
    for item in items:
        if "exported" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.real)
    items.sort(key=lambda item: item.get_closest_marker("real") is not None)  # stable: files stay in order


@pytest.fixture
def bundle_dir(tmp_path: Path) -> Path:
    """A place for one bundle; does not exist yet."""
    return tmp_path / "bundle"


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """Exports a sample to both targets, once a session; a parity failure is raised to each caller.

    The bundles are shared: tests read them and never change them.
    """
    from torch2edge.errors import ParityError
    from torch2edge.pipeline import export

    folder = tmp_path_factory.mktemp("samples")
    done: dict[str, dict[str, Bundle] | ParityError] = {}

    def get(name: str) -> dict[str, Bundle]:
        if name not in done:
            try:
                made = export(f"{ROOT}/samples/{name}.py:model", target=list(TARGETS), output=folder / name)
                assert isinstance(made, dict)
                done[name] = made
            except ParityError as error:
                done[name] = error
        found = done[name]
        if isinstance(found, ParityError):
            raise found
        return found

    return get
