"""A jax.export.Exported around StableHLO that jax did not make.

The fields are jax's own and move between releases; this is the only place that knows them (jax 0.10).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import tree_util
from jax._src import core
from jax._src.interpreters import mlir
from jax._src.lib import _jax  # type: ignore[attr-defined]
from jax.export import Exported
from jaxlib.mlir import ir

CALLING_CONVENTION = 10
"""The version that jax 0.10 writes."""

_DTYPES = {"i1": "bool", "bf16": "bfloat16", "f16": "float16", "f32": "float32", "f64": "float64"} | {
    f"{s}i{n}": f"{'u' if s else ''}int{n}" for s in ("", "u") for n in (8, 16, 32, 64)
}


def from_stablehlo(artifact: bytes, platform: str = "cpu") -> Exported:
    """Wrap a portable StableHLO artifact whose "main" takes and returns plain tensors."""
    with mlir.make_ir_context():
        module = _jax.mlir.deserialize_portable_artifact(artifact)
        module = ir.Module.parse(module) if isinstance(module, (bytes, str)) else module
        main = next(
            o for o in module.body.operations if ir.StringAttr(o.attributes["sym_name"]).value == "main"
        )
        kind = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value)
        taken, given = tuple(map(_aval, kind.inputs)), tuple(map(_aval, kind.results))
    return Exported(
        fun_name="main",
        in_tree=tree_util.tree_flatten(((0,) * len(taken), {}))[1],
        in_avals=taken,
        out_tree=tree_util.tree_flatten((0,) * len(given))[1],
        out_avals=given,
        _has_named_shardings=True,
        _in_named_shardings=(None,) * len(taken),
        _out_named_shardings=(None,) * len(given),
        in_shardings_hlo=(None,) * len(taken),
        out_shardings_hlo=(None,) * len(given),
        nr_devices=1,
        platforms=(platform,),
        ordered_effects=(),
        unordered_effects=(),
        disabled_safety_checks=(),
        mlir_module_serialized=artifact,
        calling_convention_version=CALLING_CONVENTION,
        module_kept_var_idx=tuple(range(len(taken))),
        uses_global_constants=False,
        _get_vjp=None,
    )


def _aval(value: Any) -> core.ShapedArray:
    tensor = ir.RankedTensorType(value)
    return core.ShapedArray(tuple(tensor.shape), np.dtype(_DTYPES[str(tensor.element_type)]))
