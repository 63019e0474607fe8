"""Captured program -> float .tflite under the user's names, checked on the file itself."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

from torch.export import ExportedProgram

from torch2edge.errors import ConversionError

SIGNATURE = "serving_default"
"""LiteRT's customary name of a model's only signature."""


def lower(program: ExportedProgram, out: Path, signature: dict[str, Any]) -> dict[str, Any]:
    """Write model.tflite.

    Args:
        program: decomposed.
        out: folder to write into.
        signature: {"inputs": [names], "outputs": [names], "shapes": {name: shape}}, state included.

    Returns:
        {"file", "inputs": {name: [dtype, shape]}, "outputs": {...}, "versions"}.

    Raises:
        ConversionError: the converter failed, or the file lost an input or output.
    """
    from litert_torch._convert import core, litert_converter

    names = _Names(signature["inputs"])
    program = core._run_convert_passes(program)
    with _output_names(litert_converter, signature["outputs"]):
        exporter = litert_converter.exported_programs_to_flatbuffer([program], [names])
    exporter.to_file(str(out / "model.tflite"))
    inputs, outputs = _read(out / "model.tflite")
    for what, found, wanted in (
        ("inputs", inputs, signature["inputs"]),
        ("outputs", outputs, signature["outputs"]),
    ):
        if set(found) != set(wanted):
            raise ConversionError(
                f"the .tflite file does not have the model's {what}",
                where="model.tflite",
                expected=", ".join(wanted),
                got=", ".join(found),
                next_step="report this: the converter dropped or renamed a tensor",
            )
    return {
        "file": "model.tflite",
        "inputs": {n: inputs[n] for n in signature["inputs"]},
        "outputs": {n: outputs[n] for n in signature["outputs"]},
        "versions": {p: version(p) for p in ("litert-torch", "litert-converter", "ai-edge-litert")},
    }


class _Names:
    """What the converter asks of a signature: its name and flat input names."""

    def __init__(self, inputs: list[str]) -> None:
        self.name = SIGNATURE
        self.flat_arg_names = inputs


class _output_names:
    """The converter derives output names from nesting, which the flat program no longer has: give it ours."""

    def __init__(self, converter: Any, names: list[str]) -> None:
        self.converter, self.names = converter, names

    def __enter__(self) -> None:
        self.before = self.converter._get_output_names
        self.converter._get_output_names = lambda program, lowered: self.names

    def __exit__(self, *_: object) -> None:
        self.converter._get_output_names = self.before


def _read(path: Path) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
    """Names, dtypes and shapes as the file itself has them, after every operator was prepared to run."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    plain = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES  # no packing of weights, no copy of them
    interpreter = Interpreter(model_path=str(path), experimental_op_resolver_type=plain)
    interpreter.allocate_tensors()  # a file that does not load is no result
    runner = interpreter.get_signature_runner(SIGNATURE)
    read = [
        {n: [str(d["dtype"].__name__), [int(s) for s in d["shape"]]] for n, d in details.items()}
        for details in (runner.get_input_details(), runner.get_output_details())
    ]
    return read[0], read[1]
