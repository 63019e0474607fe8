"""Is this machine fit?  Versions, a real import of each heavy part in its own process, runtimes, disk."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Literal

PROBE_SECONDS = 120


@dataclass(frozen=True, slots=True)
class Part:
    """One package: its distribution name, the range that is tested, what to import, and how to install it."""

    name: str
    wanted: str
    imports: str
    required: bool
    fix: str


PARTS = (
    Part("torch", ">=2.4,<2.15", "torch", True, "pip install torch==2.13.0"),
    Part("litert-torch", "==0.10.*", "litert_torch", True, "pip install 'litert-torch==0.10.*'"),
    Part(
        "ai-edge-litert",
        "==2.3.*",
        "ai_edge_litert.interpreter",
        True,
        "pip install 'ai-edge-litert==2.3.*'",
    ),
    Part(
        "ai-edge-quantizer",
        "==0.10.*",
        "ai_edge_quantizer",
        True,
        "pip install 'ai-edge-quantizer==0.10.*'",
    ),
    Part("jax", ">=0.10,<0.11", "jax", True, "pip install 'jax==0.10.*'"),
    Part("jaxlib", ">=0.10,<0.11", "jaxlib", True, "pip install 'jaxlib==0.10.*'"),
    Part("safetensors", ">=0.5", "safetensors", True, "pip install safetensors"),
    Part("libtpu", "==0.0.42.*", "libtpu", False, "pip install 'torch2edge[tpu]'"),
    Part("transformers", ">=4.40", "transformers", False, "pip install transformers"),
    Part("tensorflow", ">=2.16", "tensorflow", False, "pip install 'torch2edge[tensorflow]'"),
)


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found of one part.

    Attributes:
        part: its name.
        version: as installed, "" when it is not.
        status: "ok", "missing" or "broken" (both stop an export), "optional" (absent, not needed) or "note".
        says: one line.
        fix: the one command that mends it, "" when nothing is to be done.
    """

    part: str
    version: str
    status: Literal["ok", "missing", "broken", "optional", "note"]
    says: str
    fix: str = ""


def diagnose(say: Callable[[str], None] = lambda line: None) -> list[Finding]:
    """Look at every part, importing each in a process of its own."""
    python = ".".join(map(str, sys.version_info[:3]))
    findings = [
        Finding("python", python, "ok", sys.executable)
        if sys.version_info >= (3, 11)
        else Finding("python", python, "broken", "3.11 or newer is needed", "use python3.11 or newer")
    ]
    for part in PARTS:
        say(f"importing {part.name}")
        findings.append(_part(part))
    say("looking for runtimes")
    return [*findings, *_torchvision(say), *_runtimes(), _hardware(), _disk(), _memory()]


def _part(part: Part) -> Finding:
    from packaging.specifiers import SpecifierSet

    try:
        found = version(part.name)
    except PackageNotFoundError:
        status: Literal["missing", "optional"] = "missing" if part.required else "optional"
        return Finding(part.name, "", status, "not installed", part.fix)
    if not SpecifierSet(part.wanted).contains(found, prereleases=True):
        kind: Literal["broken", "note"] = "broken" if part.required else "note"
        return Finding(part.name, found, kind, f"tested with {part.wanted}", part.fix)
    failure = _probe(part.imports)
    if failure:
        return Finding(part.name, found, "broken" if part.required else "note", failure, part.fix)
    return Finding(part.name, found, "ok", "imports")


def _probe(module: str) -> str:
    """ "" when a fresh process can import it, else its last line."""
    quiet = {"JAX_PLATFORMS": "cpu", "TPU_SKIP_MDS_QUERY": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    try:
        done = subprocess.run(
            # -P: the probe sees what the command line sees, not the files of the current folder
            [sys.executable, "-P", "-c", f"import {module}"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PROBE_SECONDS,
            env={**os.environ, **quiet},
        )
    except subprocess.TimeoutExpired:
        return f"the import took more than {PROBE_SECONDS} s"
    if done.returncode == 0:
        return ""
    if done.returncode < 0:
        how = -done.returncode
        return f"the import dies with {signal.Signals(how).name if how in set(signal.Signals) else how}"
    lines = done.stderr.strip().splitlines()
    return (lines[-1] if lines else f"exit code {done.returncode}")[:120]


def _torchvision(say: Callable[[str], None]) -> list[Finding]:
    """A torchvision built for another torch breaks `import transformers` too."""
    try:
        found = version("torchvision")
    except PackageNotFoundError:
        return []
    say("importing torchvision")
    failure = _probe("torchvision")
    if failure:
        return [Finding("torchvision", found, "broken", failure, "pip uninstall -y torchvision")]
    return [Finding("torchvision", found, "ok", "imports")]


def _runtimes() -> list[Finding]:
    """One line for each: a runtime that cannot even be asked is reported, and hides no other."""
    from torch2edge import registry

    findings = []
    for name in registry.names("runtime"):
        try:
            why = registry.get("runtime", name).available()
        except Exception as error:  # a broken installation raises anything
            findings.append(Finding(f"runtime {name}", "", "note", f"{type(error).__name__}: {error}"[:120]))
            continue
        status: Literal["ok", "optional"] = "optional" if why else "ok"
        findings.append(Finding(f"runtime {name}", "", status, f"not here: {why}" if why else "available"))
    return findings


def _hardware() -> Finding:
    return Finding(
        "hardware", "", "note", "no TPU, phone, GPU or NPU is looked for: all above runs on this CPU"
    )


def _disk() -> Finding:
    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free / 1e9
    if free < 2:
        fix = "set TMPDIR to a larger disk"
        return Finding("disk", f"{free:.1f} GB", "note", f"little room in {folder}", fix)
    return Finding("disk", f"{free:.1f} GB", "ok", f"free in {folder}")


def _memory() -> Finding:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    if total < 4:
        says = "a conversion takes 1 GB and about 5 times the weights"
        return Finding("memory", f"{total:.1f} GB", "note", says)
    return Finding("memory", f"{total:.1f} GB", "ok", f"{os.cpu_count()} cores")
