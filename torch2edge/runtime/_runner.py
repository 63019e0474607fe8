"""The part that all runtimes share: names, nesting, narrowing and state around a bare session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol

import numpy as np

from torch2edge import tree
from torch2edge.errors import ConversionError, InputError
from torch2edge.numerics.dtypes import numpy_dtype
from torch2edge.stages import Array, Arrays, Opened, Signature, TensorSpec


class Session(Protocol):
    """An opened artifact: arrays in the artifact's own dtypes, by name, in and out."""

    def invoke(self, arrays: Arrays) -> Arrays:
        """Run once."""

    def close(self) -> None:
        """Free it."""


class Runtime(Protocol):
    """What a file in this room offers."""

    TARGETS: tuple[str, ...]
    """Bundle targets that it can run."""
    STAGE: str
    """What a first departure at this runtime accuses."""
    TOLERANCE: str
    """Class of tolerance that it is judged by (numerics/tolerance.py)."""

    def available(self) -> str | None:
        """None, or why it cannot run here."""

    def open(self, bundle: Opened, *, time_limit: float) -> Runner:
        """Open a verified bundle."""


def narrowed(array: Array, spec: TensorSpec) -> Array:
    """`array` in the dtype that the artifact stores.

    Raises:
        InputError: a value outside the range of that dtype.
    """
    if array.dtype.name == spec.stored:
        return array
    if array.size and spec.stored in ("int32", "float32") and array.dtype.kind in "iuf":
        info: Any = np.iinfo(np.int32) if spec.stored == "int32" else np.finfo(np.float32)
        finite: Any = array[np.isfinite(array)] if array.dtype.kind == "f" else array
        if finite.size and (finite.max() > info.max or finite.min() < info.min):
            raise InputError(
                f"input {spec.name!r} holds values that {spec.stored} cannot",
                where=spec.name,
                expected=f"{info.min} .. {info.max}",
                got=f"{finite.min()} .. {finite.max()}",
                next_step=f"the artifact takes {spec.stored}; rescale or split the input",
            )
    return array.astype(numpy_dtype(spec.stored))


def as_array(value: Any) -> Array:
    """A numpy array of a torch tensor, array or number."""
    if hasattr(value, "detach"):
        from torch2edge.reference import to_numpy

        return to_numpy(value.cpu())
    return np.asarray(value)


class Runner:
    """A model that runs: call it as the module is called, or by names with `run`.

    Args:
        name: the runtime's public name.
        signature: of the bundle.
        session: the opened artifact.
        start: buffer path -> start value of each mutated buffer.
    """

    def __init__(self, name: str, signature: Signature, session: Session, start: Arrays) -> None:
        self.name, self.signature = name, signature
        self._session, self._start = session, start
        self.reset()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run on inputs in the module's own form.

        Returns:
            numpy arrays in the structure that the module returns.

        Raises:
            InputError: inputs that do not fit; all mismatches are listed.
        """
        outputs = self.run(bound(self.signature, args, kwargs))
        return tree.unflatten(self.signature.output_tree, [outputs[s.name] for s in self.signature.outputs])

    def run(self, inputs: Mapping[str, Any]) -> Arrays:
        """Run on arrays by input name; returns arrays by output name, in the module's dtypes.

        Raises:
            InputError: inputs that do not fit; all mismatches are listed.
        """
        arrays = checked(self.signature.inputs, inputs)
        feed = {s.name: narrowed(arrays[s.name], s) for s in self.signature.inputs}
        for spec in self.signature.state:
            feed[spec.input.name] = self._state[spec.buffer]
        results = self._session.invoke(feed)
        wanted = [s.name for s in self.signature.outputs] + [s.output.name for s in self.signature.state]
        if set(wanted) - set(results):
            raise ConversionError(
                "the runtime did not return every output",
                where=self.name,
                expected=str(wanted),
                got=str(list(results)),
            )
        for spec in self.signature.state:
            self._state[spec.buffer] = np.array(results[spec.output.name], copy=True)
        return {s.name: self._widened(np.asarray(results[s.name]), s) for s in self.signature.outputs}

    def _widened(self, array: Array, spec: TensorSpec) -> Array:
        """Back to the module's dtype, where the artifact is known to store another; never a silent cast."""
        if array.dtype.name == spec.stored and spec.stored != spec.dtype:
            return array.astype(numpy_dtype(spec.dtype))
        return array

    def reset(self) -> None:
        """Put the state back to its start values."""
        self._state = {
            s.buffer: narrowed(np.array(self._start[s.buffer], copy=True), s.input)
            for s in self.signature.state
        }

    def close(self) -> None:
        """End the worker behind it."""
        self._session.close()

    def __enter__(self) -> Runner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def checked(specs: Sequence[TensorSpec], inputs: Mapping[str, Any]) -> Arrays:
    """Inputs as arrays, when names, shapes and dtypes fit.

    A Python number or a float64 array of a caller's own making is taken for float32; everything else must
    have the spec's dtype.

    Raises:
        InputError: lists every mismatch.
    """
    names = [s.name for s in specs]
    wrong = [f"{n}: missing" for n in names if n not in inputs]
    wrong += [f"{n}: the model has no such input" for n in inputs if n not in names]
    arrays: Arrays = {}
    for spec in specs:
        if spec.name not in inputs:
            continue
        array = as_array(inputs[spec.name])
        if not isinstance(inputs[spec.name], np.ndarray) and np.isscalar(inputs[spec.name]):
            array = array.astype(numpy_dtype(spec.dtype))
        if tuple(array.shape) != spec.shape:
            wrong.append(f"{spec.name}: expected shape {list(spec.shape)}, got {list(array.shape)}")
        if array.dtype.name != spec.dtype:
            if {array.dtype.name, spec.dtype} in ({"int32", "int64"}, {"float32", "float64"}):
                array = narrowed(array, TensorSpec(spec.name, spec.shape, spec.dtype, spec.dtype))
            else:
                wrong.append(f"{spec.name}: expected dtype {spec.dtype}, got {array.dtype.name}")
        arrays[spec.name] = array
    if wrong:
        raise InputError(
            f"{len(wrong)} input(s) do not fit the model",
            details=wrong,
            expected=", ".join(f"{s.name}: {s.dtype}{list(s.shape)}" for s in specs),
            next_step="`torch2edge inspect BUNDLE` shows the signature",
        )
    return arrays


def bound(signature: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Inputs by name from a call in the module's own form.

    Raises:
        InputError: too many or unknown arguments, another nesting, or another constant than at capture.
    """
    given: dict[str, Any] = {}
    wrong: list[str] = []
    rest, spare = list(args), dict(kwargs)
    for parameter in signature.parameters:
        if parameter.kind == "var_positional":
            given[parameter.name], rest = rest, []
        elif parameter.kind == "var_keyword":
            given[parameter.name], spare = spare, {}
        elif parameter.kind in ("positional_only", "positional") and rest:
            given[parameter.name] = rest.pop(0)
        elif parameter.kind != "positional_only" and parameter.name in spare:
            given[parameter.name] = spare.pop(parameter.name)
    wrong += [f"{len(rest)} positional argument(s) too many"] if rest else []
    wrong += [f"unknown argument {n!r}" for n in spare]
    found: dict[int, Any] = {}
    for parameter in signature.parameters:
        if parameter.name in given:
            _match(parameter.tree, given[parameter.name], parameter.name, found, wrong)
        elif not parameter.optional:
            wrong.append(f"{parameter.name}: missing")
    if wrong:
        raise InputError(
            "the arguments do not fit the model as it was captured",
            details=wrong,
            expected=", ".join(f"{s.name}: {s.dtype}{list(s.shape)}" for s in signature.inputs),
        )
    return {s.name: found[i] for i, s in enumerate(signature.inputs)}


def _match(node: tree.Tree, value: Any, path: str, found: dict[int, Any], wrong: list[str]) -> None:
    kind = node["kind"]
    if kind == "leaf":
        found[node["index"]] = value
    elif kind in ("const", "none"):
        wanted = node.get("value")
        if type(value) is not type(wanted) or value != wanted:
            wrong.append(f"{path}: captured as the constant {wanted!r}, got {value!r}")
    elif kind in ("list", "tuple"):
        if not isinstance(value, (list, tuple)) or len(value) != len(node["items"]):
            wrong.append(f"{path}: expected {len(node['items'])} items, got {type(value).__name__}")
            return
        for i, item in enumerate(node["items"]):
            _match(item, value[i], f"{path}.{i}", found, wrong)
    elif kind == "dict":
        if not isinstance(value, Mapping) or set(value) != set(node["keys"]):
            got = list(value) if isinstance(value, Mapping) else type(value).__name__
            wrong.append(f"{path}: expected the keys {node['keys']}, got {got}")
            return
        for key, item in zip(node["keys"], node["items"], strict=True):
            _match(item, value[key], f"{path}.{key}", found, wrong)
    else:
        for field, item in zip(node["fields"], node["items"], strict=True):
            if not hasattr(value, field):
                wrong.append(
                    f"{path}: expected an object with the field {field!r}, got {type(value).__name__}"
                )
                continue
            _match(item, getattr(value, field), f"{path}.{field}", found, wrong)


def start_values(bundle: Opened) -> Arrays:
    """Start values of mutated buffers, from the bundle's weights."""
    if not bundle.signature.state:
        return {}
    from torch2edge.program import load_weights
    from torch2edge.reference import to_numpy

    weights = load_weights(bundle.path)
    return {s.buffer: to_numpy(weights[s.buffer]) for s in bundle.signature.state}
