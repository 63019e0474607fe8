"""Worker processes: what goes over and back, and what a service or its import may raise."""

from __future__ import annotations

import os
import resource
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.bundles import DTYPES
from torch2edge import errors
from torch2edge.workers import Worker

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def echo() -> Iterator[Worker]:
    """One worker for all tests that leave it alive."""
    with Worker("tests.services.echo", stage="echo", time_limit=60) as worker:
        yield worker


# ---------------------------------------------------------------- what goes over


@pytest.mark.parametrize("name", [*DTYPES, "bfloat16", "float8_e4m3fn", "int4"])
def test_every_dtype_and_shape_comes_back(echo: Worker, name: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) else np.dtype(name)
    given = {
        "vector": np.arange(-3, 5).astype(dtype),
        "none": np.zeros((2, 0, 3), dtype),
        "point": np.ones((), dtype),
        "turned": np.arange(6).reshape(2, 3).astype(dtype).T,
    }
    _, got = echo.call("echo", {}, given)
    assert list(got) == list(given)
    for key, array in given.items():
        assert (got[key].dtype, got[key].shape) == (array.dtype, array.shape)
        assert got[key].tobytes() == array.tobytes()


def test_a_foreign_byte_order_arrives_as_the_same_numbers(echo: Worker) -> None:
    given = np.array([1.0, -2.5], ">f4")
    _, got = echo.call("echo", {}, {"x": given})
    assert got["x"].tolist() == [1.0, -2.5]


def test_100_megabytes_go_over_and_back_and_can_be_written_to(echo: Worker) -> None:
    given = np.arange(25_000_000, dtype=np.int32)
    _, got = echo.call("writable", {}, {"x": given})
    assert got["x"].nbytes == 100_000_000
    assert np.array_equal(got["x"], given + 1)
    got["x"][0] = 7


def test_the_body_comes_back(echo: Worker) -> None:
    body = {"text": "é \U0001f600 \n", "nested": [1, None, {"a": [True, 2.5]}], "big": 2**70}
    assert echo.call("echo", body)[0] == body


@pytest.mark.parametrize(
    ("body", "arrays"),
    [
        ({"value": object()}, {}),
        ({}, {"x": np.array(["text"])}),
        ({}, {"x": np.array([object()])}),
        ({}, {"x": np.array(["2026-01-01"], "M8[D]")}),
    ],
)
def test_values_that_cannot_pass_are_refused_and_the_worker_goes_on(
    echo: Worker, body: Any, arrays: Any
) -> None:
    with pytest.raises(errors.InputError, match="cannot be given"):
        echo.call("echo", body, arrays)
    assert echo.call("echo", {"still": "here"})[0] == {"still": "here"}


def test_prints_and_native_writes_do_not_break_the_protocol(echo: Worker) -> None:
    body, arrays = echo.call("print", {"a": 1}, {"x": np.ones(3)})
    assert body == {"a": 1}
    assert arrays["x"].tolist() == [1, 1, 1]
    assert echo.call("echo", {"b": 2})[0] == {"b": 2}


def test_calls_from_several_threads_do_not_mix(echo: Worker) -> None:
    wrong: list[int] = []

    def many(number: int) -> None:
        for _ in range(20):
            body, arrays = echo.call("echo", {"n": number}, {"x": np.full(1000, number)})
            if body["n"] != number or not (arrays["x"] == number).all():
                wrong.append(number)

    threads = [threading.Thread(target=many, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_worker_outlives_the_thread_that_started_it() -> None:
    made: list[Worker] = []
    thread = threading.Thread(
        target=lambda: made.append(Worker("tests.services.echo", stage="echo", time_limit=60))
    )
    thread.start()
    thread.join()
    time.sleep(0.5)
    with made[0] as worker:
        assert worker.call("echo", {"a": 1})[0] == {"a": 1}


def test_files_of_the_current_folder_do_not_shadow_the_standard_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "random.py").write_text("raise SystemExit('shadowed')")
    (tmp_path / "json.py").write_text("raise SystemExit('shadowed')")
    monkeypatch.chdir(tmp_path)
    with Worker("tests.services.echo", stage="echo", time_limit=60) as worker:
        facts, _ = worker.call("facts")
    assert facts["cwd"] == str(tmp_path)
    assert not facts["random"].startswith(str(tmp_path))


def test_env_is_added(tmp_path: Path) -> None:
    (tmp_path / "own_service.py").write_text(
        "import os\nOPS = {'get': lambda body, arrays: ({'v': os.environ['MINE']}, {})}\n"
    )
    path = f"{tmp_path}{os.pathsep}{ROOT}"
    with Worker("own_service", stage="own", time_limit=60, env={"PYTHONPATH": path, "MINE": "7"}) as worker:
        assert worker.call("get")[0] == {"v": "7"}


def test_more_than_1024_open_files_in_the_host() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        with Worker("tests.services.echo", stage="echo", time_limit=60) as worker:
            assert worker.call("echo", {"a": 1})[0] == {"a": 1}
    finally:
        for number in held:
            os.close(number)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# ---------------------------------------------------------------- errors of the service


def test_a_typed_error_arrives_as_the_same_class_with_all_fields(echo: Worker) -> None:
    body = {
        "kind": "UnsupportedError", "what": "two blockers", "where": "net.py:7", "expected": "an operator",
        "got": "aten.foo", "next_step": "rewrite it", "details": ["aten.foo", "aten.bar"],
    }  # fmt: skip
    with pytest.raises(errors.UnsupportedError) as caught:
        echo.call("raise", body)
    error = caught.value
    assert type(error) is errors.UnsupportedError
    assert {**error.to_json(), "next_step": error.next_step} == {**body, "next": "rewrite it"}


@pytest.mark.parametrize(
    "kind",
    [n for n, k in vars(errors).items() if isinstance(k, type) and issubclass(k, errors.Torch2EdgeError)],
)
def test_each_kind_of_error_comes_over(echo: Worker, kind: str) -> None:
    with pytest.raises(errors.Torch2EdgeError) as caught:
        echo.call("raise", {"kind": kind, "what": "w"})
    assert type(caught.value) is getattr(errors, kind)


def test_an_unknown_kind_becomes_a_conversion_error(echo: Worker) -> None:
    with pytest.raises(errors.ConversionError, match="home made") as caught:
        echo.call("foreign")
    assert caught.value.where == "here"


@pytest.mark.parametrize("kind", ["Any", "Sequence", "annotations", "no_such_thing"])
def test_the_kind_of_an_answer_is_only_ever_an_error(kind: str) -> None:
    from torch2edge.workers import _same

    reply = {**errors.UsageError("w").to_json(), "kind": kind}
    assert type(_same(reply)) is errors.ConversionError


def test_any_other_exception_becomes_a_conversion_error_with_the_log(echo: Worker) -> None:
    with pytest.raises(errors.ConversionError) as caught:
        echo.call("fault", {"message": "first line\nsecond line"})
    error = caught.value
    assert error.what == "echo failed: OverflowError: first line"
    assert error.details == ("second line",)
    assert "a line before the fault" in error.log
    assert "Traceback (most recent call last)" in error.log
    assert echo.call("echo", {"still": 1})[0] == {"still": 1}


def test_an_empty_message_is_no_trouble(echo: Worker) -> None:
    with pytest.raises(errors.ConversionError, match="OverflowError"):
        echo.call("fault", {"message": ""})


def test_an_answer_that_is_no_json_and_an_unknown_operation(echo: Worker) -> None:
    with pytest.raises(errors.ConversionError, match="no JSON"):
        echo.call("no json")
    with pytest.raises(errors.ConversionError, match="no operation 'nothing', only echo, "):
        echo.call("nothing")
    assert echo.call("echo", {"still": 1})[0] == {"still": 1}


def test_reading_the_log_does_not_disturb_it(echo: Worker) -> None:
    for count in (1, 2, 3):
        with pytest.raises(errors.ConversionError) as caught:
            echo.call("fault", {"message": f"unique {os.getpid()} {count}"})
    for count in (1, 2, 3):
        assert f"OverflowError: unique {os.getpid()} {count}\n" in caught.value.log


# ---------------------------------------------------------------- imports of the service


def test_a_service_that_does_not_exist_or_lacks_a_package() -> None:
    for service, name in (
        ("tests.services.absent", "absent"),
        ("tests.services.missing_part", "no_such_package_anywhere"),
    ):
        with Worker(service, stage="conversion", time_limit=60) as worker:
            with pytest.raises(errors.MissingPartError, match=name) as caught:
                worker.call("echo")
            assert "doctor" in caught.value.next_step
            with pytest.raises(errors.MissingPartError):
                worker.call("echo")


def test_a_service_whose_import_raises() -> None:
    worker = Worker("tests.services.bad_import", stage="conversion", time_limit=60)
    with worker, pytest.raises(errors.ConversionError, match="built for another numpy"):
        worker.call("echo")


def test_a_service_whose_import_dies() -> None:
    with Worker("tests.services.crash_import", stage="conversion", time_limit=60) as worker:
        with pytest.raises(errors.WorkerCrashed) as caught:
            worker.call("echo", {}, {"x": np.zeros(1_000_000)})  # more than a pipe holds
        assert caught.value.got == "signal SIGSEGV"


def test_a_service_whose_import_hangs() -> None:
    with Worker("tests.services.hang_import", stage="conversion", time_limit=1.0) as worker:
        began = time.monotonic()
        with pytest.raises(errors.WorkerTimeout, match="time limit of 1 s"):
            worker.call("echo", {}, {"x": np.zeros(1_000_000)})
        assert time.monotonic() - began < 10


def test_an_interpreter_that_is_not_there() -> None:
    with pytest.raises(errors.WorkerCrashed, match="could not be started") as caught:
        Worker("tests.services.echo", stage="conversion", python=("/no/such/python",))
    assert "/no/such/python" in caught.value.got


# ---------------------------------------------------------------- --debug


@pytest.mark.parametrize("debug", [False, True])
def test_debug_prints_the_workers_log(
    debug: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from torch2edge import cli
    from torch2edge.cli import runtimes

    def run(arguments: Any) -> int:
        with Worker("tests.services.echo", stage="echo", time_limit=60) as worker:
            worker.call("fault", {"message": "refused"})
        return 0

    monkeypatch.setattr(runtimes, "run", run)
    assert cli.main(["runtimes", *(["--debug"] if debug else [])]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "error: echo failed: OverflowError: refused" in said.err
    assert ("a line before the fault" in said.err) is debug
    assert ("Traceback" in said.err) is debug
