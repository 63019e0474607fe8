"""The only place that puts the steps in order: load, capture, lower, package, run, compare."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch2edge.errors import ParityError, Torch2EdgeError, UsageError
from torch2edge.stages import Captured, Golden, Lowered, Opened, Source

if TYPE_CHECKING:
    import torch

    from torch2edge.bundle import Bundle, Staging
    from torch2edge.numerics.report import Report

TARGETS = ("litert", "cloud-tpu")
Progress = Callable[[str], None]


def export(
    model: torch.nn.Module | str | os.PathLike[str],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    target: str | Sequence[str],
    output: str | os.PathLike[str],
    parity: bool = True,
    force: bool = False,
    weights: str | os.PathLike[str] | None = None,
    inputs: Sequence[str] = (),
    time_limit: float = 600.0,
    progress: Progress | None = None,
) -> Bundle | dict[str, Bundle]:
    """Export a PyTorch model to one or more targets, and prove that the numbers survived.

    Args:
        model: a module, or any MODEL form of the command line.
        args: positional example inputs, a tuple or one tensor.
        kwargs: keyword example inputs.
        target: "litert", "cloud-tpu", or a list of both.
        output: folder of the bundle; for a list of targets its parent, one folder for each target.
        parity: compare all stages; otherwise the manifest says "not checked".
        force: replace a bundle that stands there.
        weights: state dict to load into the module (safetensors, or a pickle without code).
        inputs: "name=1x3x224x224:float32" or "name=file.npy".
        time_limit: seconds for each step in a worker process.
        progress: called with one line at the start of each step.

    Returns:
        the bundle, or target -> bundle for a list.

    Raises:
        Torch2EdgeError: one of its named kinds.  ParityError leaves the bundle on disk, marked as failed.
    """
    from torch2edge import bundle as bundles
    from torch2edge import capture as captures
    from torch2edge import program, source
    from torch2edge.converters import lowering

    say = progress or (lambda line: None)
    single = isinstance(target, str)
    targets = _targets(target)
    folders = {t: Path(output) if single else Path(output) / t for t in targets}
    with ExitStack() as stack:
        staged = {t: stack.enter_context(bundles.staging(f, force=force)) for t, f in folders.items()}
        worker = lowering.start(time_limit)  # imports the converter while this process loads and captures
        stack.callback(worker.close)
        say("loading the model")
        loaded = source.load(model, args=args, kwargs=kwargs, weights=weights, inputs=inputs)
        say("capturing with torch.export")
        captured = captures.capture(loaded)
        first, *others = (s.path for s in staged.values())
        program.save(captured, first)
        for other in others:
            _link(first, other)
        say(f"lowering to {', '.join(targets)}")
        with ThreadPoolExecutor(1) as pool:
            paths = {t: s.path for t, s in staged.items()}
            pending = pool.submit(
                lowering.lower, first, captured.signature, paths, time_limit=time_limit, worker=worker
            )
            try:
                cases, left_out = _goldens(loaded, captured, generated=parity)
            except BaseException:
                worker.close()
                raise
            lowered = pending.result()
        done: dict[str, Bundle] = {}
        for t in targets:
            notes = [*captured.notes, *left_out]
            report = None
            if parity:
                say(f"parity of {t}")
                report = _compare(_opened(staged[t].path, lowered[t]), cases, None, time_limit, notes)
            done[t] = _package(staged[t], lowered[t], captured, loaded, cases, report, notes)
    failed = [t for t, b in done.items() if b.report is not None and not b.report.passed]
    if failed:
        reports = {t: done[t].report for t in failed}
        raise ParityError(
            f"parity failed for {', '.join(failed)}",
            details=[f"{t}: first departure at {r.departs}" for t, r in reports.items() if r is not None],
            where=", ".join(str(done[t].path) for t in failed),
            expected="every runtime within the noise floor of eager PyTorch",
            next_step="the bundle is kept, marked as failed; `torch2edge parity BUNDLE` shows every number",
            report=next(iter(reports.values())),
            bundle=done[targets[0]] if single else done,
        )
    return done[targets[0]] if single else done


def parity(
    bundle: Bundle | str | os.PathLike[str],
    runtimes: Sequence[str] | None = None,
    inputs: Mapping[str, Any] | None = None,
    reference: torch.nn.Module | None = None,
    *,
    time_limit: float = 600.0,
) -> Report:
    """Compare runtimes with the bundle's goldens, or with a module.

    Args:
        bundle: an opened bundle or its folder.
        runtimes: public names; None takes each one that the bundle's target has.
        inputs: input name -> array, instead of the goldens' inputs.
        reference: the eager module to compare with; None takes the goldens, or, for `inputs`, the captured
            program in eager PyTorch.
        time_limit: seconds for each call into a worker.

    Raises:
        UsageError: a runtime that does not exist, or that cannot run this target.
    """
    from torch2edge import bundle as bundles
    from torch2edge import goldens
    from torch2edge.reference import Reference
    from torch2edge.runtime import eager
    from torch2edge.runtime._runner import checked

    opened = bundle if isinstance(bundle, bundles.Bundle) else bundles.Bundle.open(bundle)
    view = Opened(opened.path, opened.target, opened.signature, opened.arguments)
    notes: list[str] = []
    if inputs is None and reference is None:
        cases = opened.goldens()
    else:
        specs = opened.signature.inputs
        mine = (
            [("user", checked(specs, inputs))]
            if inputs is not None
            else [(g.name, g.inputs) for g in opened.goldens()]
        )
        if reference is None:
            with eager.open(view) as runner:
                cases = goldens.of_user(runner, dict(mine), opened.signature.outputs)
            notes.append(
                "reference: the captured program in eager PyTorch (the bundle does not hold the module)"
            )
        else:
            answers = _ModuleRunner(Reference(reference, opened.signature))
            cases = goldens.of_user(answers, dict(mine), opened.signature.outputs)
        notes.append("noise floor assumed, not measured in float64")
    return _compare(view, cases, runtimes, time_limit, notes)


def load(bundle: Bundle | str | os.PathLike[str], runtime: str = "", *, time_limit: float = 600.0) -> Any:
    """Open a bundle with a runtime; the result is called as the module is.

    Args:
        bundle: an opened bundle or its folder.
        runtime: a public name ("xla", "litert-cpu", ...); "" takes the target's own default.
        time_limit: seconds for each call.

    Raises:
        UsageError: an unknown runtime, or one that cannot run this target.
        MissingPartError: the runtime is not available here.
    """
    from torch2edge import bundle as bundles
    from torch2edge import registry
    from torch2edge.errors import MissingPartError

    opened = bundle if isinstance(bundle, bundles.Bundle) else bundles.Bundle.open(bundle)
    name = runtime or {"litert": "litert-cpu", "cloud-tpu": "xla"}[opened.target]
    module = registry.get("runtime", name)
    _fits(name, module, opened.target)
    why = module.available()
    if why:
        raise MissingPartError(f"runtime {name} is not available", got=why)
    return module.open(
        Opened(opened.path, opened.target, opened.signature, opened.arguments), time_limit=time_limit
    )


def runtimes() -> dict[str, str | None]:
    """Runtime name -> None, or why it is not available here."""
    from torch2edge import registry

    return {n: registry.get("runtime", n).available() for n in registry.names("runtime")}


class _ModuleRunner:
    def __init__(self, reference: Any) -> None:
        self.reset, self.run = reference.reset, reference


def _targets(target: str | Sequence[str]) -> list[str]:
    targets = [target] if isinstance(target, str) else list(dict.fromkeys(target))
    unknown = [t for t in targets if t not in TARGETS]
    if unknown or not targets:
        raise UsageError(
            f"unknown target {', '.join(map(repr, unknown))}" if unknown else "no target given",
            expected=", ".join(TARGETS),
            next_step="pass --target litert, --target cloud-tpu, or both",
        )
    return targets


def _fits(name: str, module: Any, target: str) -> None:
    if target not in module.TARGETS:
        from torch2edge import registry

        fitting = [n for n in registry.names("runtime") if target in registry.get("runtime", n).TARGETS]
        raise UsageError(
            f"runtime {name} cannot run a {target} bundle", expected=", ".join(fitting), got=name,
            next_step=f"use one of the above, or export with --target {module.TARGETS[0]}",
        )  # fmt: skip


def _link(first: Path, other: Path) -> None:
    """The second bundle's program and weights share the first one's bytes on disk where the disk can."""
    import shutil

    from torch2edge.program import PROGRAM, WEIGHTS

    for name in (PROGRAM, WEIGHTS):
        try:
            os.link(first / name, other / name)
        except OSError:
            shutil.copyfile(first / name, other / name)


def _goldens(source: Source, captured: Captured, *, generated: bool) -> tuple[list[Golden], list[str]]:
    from torch2edge import goldens

    return goldens.make(source, captured, generated=generated)


def _opened(path: Path, lowered: Lowered) -> Opened:
    return Opened(path, lowered.target, lowered.signature, lowered.arguments)


def _package(
    staging: Staging,
    lowered: Lowered,
    captured: Captured,
    source: Source,
    cases: list[Golden],
    report: Report | None,
    notes: list[str],
) -> Bundle:
    from torch2edge import bundle as bundles

    if report is not None:
        (staging.path / "reports").mkdir(exist_ok=True)
        report.to_json(staging.path / "reports" / "parity.json")
    verdict = "not checked" if report is None else "passed" if report.passed else "failed"
    staging.commit(
        {
            "target": lowered.target,
            "signature": bundles.signature_to_json(lowered.signature),
            "arguments": list(lowered.arguments),
            "model": lowered.files["model"],
            "options": {"strict": captured.strict, "precision": "default"},
            "origin": source.origin,
            "versions": _versions() | lowered.versions,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "parity": verdict,
            "goldens": bundles.write_goldens(staging.path, cases),
            "notes": notes,
        }
    )
    return bundles.Bundle.open(staging.output)


def _versions() -> dict[str, str]:
    found = {}
    for name in ("torch2edge", "torch", "numpy"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed as a package"
    return found


def _compare(
    view: Opened, cases: list[Golden], names: Sequence[str] | None, time_limit: float, notes: list[str]
) -> Report:
    """Run every runtime on every case, side by side up to the cores; name the first stage that departs."""
    from torch2edge import registry
    from torch2edge.numerics.report import Report

    chosen = list(names) if names is not None else ladder(view.target)
    modules = {n: registry.get("runtime", n) for n in chosen}
    for name, module in modules.items():
        _fits(name, module, view.target)
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        results = dict(
            zip(chosen, pool.map(lambda n: _run(n, modules[n], view, cases, time_limit), chosen), strict=True)
        )
    failed = [n for n in chosen if results[n][0].status == "failed"]
    if failed and names is None and "xla" not in results and failed[0] != "eager":
        # Only a failure needs the stage between capture and .tflite to find who is to blame.
        results["xla"] = _run("xla", registry.get("runtime", "xla"), view, cases, time_limit)
        chosen = [n for n in ORDER if n in results]
    return Report(
        target=view.target,
        runtimes=tuple(results[n][0] for n in chosen),
        records=tuple(r for n in chosen for r in results[n][1]),
        notes=tuple(notes),
        versions=_versions(),
    )


ORDER = ("eager", "xla", "litert-reference", "litert-cpu-noreuse", "litert-cpu")
"""From the module to the device: the first runtime here that departs names the stage to blame."""


def ladder(target: str) -> list[str]:
    """Runtimes that parity takes by default for a target."""
    return (
        [n for n in ORDER if n in ("eager", "xla")]
        if target == "cloud-tpu"
        else [n for n in ORDER if n != "xla"]
    )


def _run(
    name: str, module: Any, view: Opened, cases: list[Golden], time_limit: float
) -> tuple[Any, list[Any]]:
    import time

    from torch2edge.numerics.compare import compare
    from torch2edge.stages import RuntimeRecord

    why = module.available()
    if why:
        return RuntimeRecord(name, module.STAGE, "not run", why), []
    records: list[Any] = []
    try:
        with module.open(view, time_limit=time_limit) as runner:
            began = time.perf_counter()
            for golden in cases:
                if golden.reset:
                    runner.reset()
                outputs = runner.run(golden.inputs)
                records += compare(name, golden, outputs, view.signature.outputs, kind=module.TOLERANCE)
            seconds = time.perf_counter() - began
    except Torch2EdgeError as error:
        return RuntimeRecord(name, module.STAGE, "failed", str(error)), records
    passed = bool(records) and all(r.passed for r in records)
    return RuntimeRecord(name, module.STAGE, "passed" if passed else "failed", "", seconds), records
