"""What the three LiteRT CPU runtimes share."""

from __future__ import annotations

from importlib.util import find_spec

from torch2edge.runtime._remote import RemoteSession
from torch2edge.runtime._runner import Runner, start_values
from torch2edge.stages import Opened


def available() -> str | None:
    """None, or why the LiteRT interpreter cannot run here."""
    return (
        None if find_spec("ai_edge_litert") else "needs ai-edge-litert: pip install 'ai-edge-litert==2.3.*'"
    )


def open_with(name: str, bundle: Opened, *, resolver: str, preserve: bool, time_limit: float) -> Runner:
    """Open model.tflite with one operator resolver ("BUILTIN_REF" or "AUTO")."""
    outputs = [s.name for s in bundle.signature.outputs] + [s.output.name for s in bundle.signature.state]
    session = RemoteSession(
        "torch2edge.runtime._litert_service",
        stage=f"runtime {name}",
        options={"model": str(bundle.path / "model.tflite"), "resolver": resolver, "preserve": preserve},
        outputs=outputs,
        time_limit=time_limit,
    )
    return Runner(name, bundle.signature, session, start_values(bundle))
