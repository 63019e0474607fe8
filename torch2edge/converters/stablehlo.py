"""Captured program -> portable StableHLO with weights as arguments.

Arguments, in order: the weights (names in `arguments`), the inputs, the state.  Results: outputs, new state.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

from torch.export import ExportedProgram

from torch2edge.errors import ConversionError, UnsupportedError
from torch2edge.state import PREFIX

ALLOWED = ("stablehlo.", "chlo.", "func.", "builtin.")
TARGET_VERSION = "1.0.0"
"""Oldest StableHLO that this file format promises; 5 years of backward compatibility run from the writer's
version (github.com/openxla/stablehlo, docs/compatibility.md, read November 2026)."""

_DTYPES = {
    "f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "i64": "int64", "i32": "int32",
    "i16": "int16", "i8": "int8", "ui8": "uint8", "ui16": "uint16", "ui32": "uint32", "ui64": "uint64",
    "i1": "bool",
}  # fmt: skip


def lower(program: ExportedProgram, out: Path, signature: dict[str, Any]) -> dict[str, Any]:
    """Write model.default.stablehlo.

    Args:
        program: decomposed.
        out: folder to write into.
        signature: {"inputs": [names], "outputs": [names]}, state included.

    Returns:
        {"file", "arguments", "inputs": {name: [dtype, shape]}, "outputs": {...}, "versions"}.

    Raises:
        UnsupportedError: operators left that are not StableHLO.
        ConversionError: the lowering changed the number of arguments or results.
    """
    from litert_torch.backend.export import exported_program_to_mlir

    lowered = exported_program_to_mlir(program, inline_constants=False)
    text = str(lowered.module.operation.get_asm(enable_debug_info=False))
    module, names = _parse(text)
    _refuse_foreign(names)
    weights = [
        s.input_spec.name.removeprefix(PREFIX) for s in lowered.input_signature if s.input_spec.is_parameter
    ]
    kinds = [s.input_spec.is_parameter for s in lowered.input_signature]
    if kinds != sorted(kinds, reverse=True):
        raise ConversionError(
            "the lowering mixed weights and inputs", where="StableHLO", expected="weights first"
        )
    taken, given = _types(module)
    inputs, outputs = taken[len(weights) :], given
    for what, found, wanted in (
        ("inputs", inputs, signature["inputs"]),
        ("outputs", outputs, signature["outputs"]),
    ):
        if len(found) != len(wanted):
            raise ConversionError(
                f"the lowering changed the number of {what}", expected=str(wanted), got=str(found)
            )
    name = "model.default.stablehlo"
    (out / name).write_bytes(_portable(module))
    return {
        "file": name,
        "arguments": weights,
        "inputs": dict(zip(signature["inputs"], inputs, strict=True)),
        "outputs": dict(zip(signature["outputs"], outputs, strict=True)),
        "versions": {p: version(p) for p in ("litert-torch", "jax", "jaxlib")}
        | {"stablehlo": TARGET_VERSION},
    }


def _parse(text: str) -> tuple[Any, set[str]]:
    """Cross from the converter's MLIR to jaxlib's as text: two MLIR runtimes must not share objects."""
    from jax._src.interpreters import mlir
    from jaxlib.mlir import ir

    names: set[str] = set()

    def visit(operation: Any) -> Any:
        names.add(operation.name)
        return ir.WalkResult.ADVANCE

    with mlir.make_ir_context():
        module = ir.Module.parse(text)
        module.operation.walk(visit)
    return module, names


def _refuse_foreign(names: set[str]) -> None:
    foreign = sorted(n for n in names if not n.startswith(ALLOWED))
    if foreign:
        raise UnsupportedError(
            f"{len(foreign)} operator(s) lowered to something other than StableHLO",
            details=foreign,
            where="cloud-tpu",
            expected="stablehlo, chlo, func, builtin",
            next_step="replace the PyTorch operator that makes them",
        )


def _types(module: Any) -> tuple[list[list[Any]], list[list[Any]]]:
    from jaxlib.mlir import ir

    with module.context:
        main = next(
            o for o in module.body.operations if ir.StringAttr(o.attributes["sym_name"]).value == "main"
        )
        kind = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value)

        def spec(value: Any) -> list[Any]:
            tensor = ir.RankedTensorType(value)
            return [_DTYPES[str(tensor.element_type)], list(tensor.shape)]

        return [spec(t) for t in kind.inputs], [spec(t) for t in kind.results]


def _portable(module: Any) -> bytes:
    from jax._src.lib import _jax  # type: ignore[attr-defined]

    with module.context:
        artifact = _jax.mlir.serialize_portable_artifact(module, TARGET_VERSION)
    return bytes(artifact)
