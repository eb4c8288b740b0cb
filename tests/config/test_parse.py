from __future__ import annotations

import logging
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import pytest
import yaml

from mlmf.config import MLMFConfig
from mlmf.config.model import LoraSettings
from mlmf.config.parse import dump_config, parse_config, run_script
from mlmf.errors import UserError


@dataclass
class Experiment:
    """A schema with every kind of field that the package's schemas have."""

    output_dir: str
    """Where everything is written."""
    model: MLMFConfig = field(default_factory=MLMFConfig)
    """The memory."""
    steps: int = 3
    """Optimiser steps, at least one."""
    learning_rate: float = 1e-3
    """Peak rate."""
    tasks: list[str] = field(default_factory=lambda: ["locco"])
    """What is scored."""
    seeds: list[int] | None = None
    """Seeds to run."""
    note: str | None = None
    """Free text."""
    mode: Literal["fast", "full"] = "fast"
    """How much is run."""
    data: Path = Path("data")
    """Folder of the data."""

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise UserError(f"steps must be at least 1, got {self.steps}")


def parse(*argv: str) -> Experiment:
    return parse_config(
        Experiment, argv, prog="train.py", description="Trains.", epilog="  train.py --steps 1\n  train.py"
    )


@pytest.fixture
def write(tmp_path: Path):
    def write_file(name: str, text: str) -> str:
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return write_file


def test_defaults_are_the_dataclass_itself() -> None:
    assert parse("--output_dir", "out") == Experiment("out")


def test_later_files_and_options_win_and_siblings_survive(write) -> None:
    first = write("a.yaml", "output_dir: out\nsteps: 5\nmodel:\n  alpha: 0.5\n  lora:\n    r: 4\n")
    second = write("b.yaml", "learning_rate: 1e-4\nmodel:\n  lora: {lora_alpha: 8}\n")
    config = parse("--config", first, f"--config={second}", "--model.beta", "3")
    assert config == Experiment(
        "out", MLMFConfig(alpha=0.5, beta=3.0, lora=LoraSettings(r=4, lora_alpha=8)), steps=5, learning_rate=1e-4
    )


def test_option_before_a_file_loses_to_it(write) -> None:
    file = write("a.yaml", "output_dir: out\nsteps: 5\n")
    assert parse("--steps", "9", "--config", file).steps == 5
    assert parse("--config", file, "--steps", "9").steps == 9


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["--tasks", "locco"], ["locco"]),
        (["--tasks", "locco", "locomo", "--steps", "2"], ["locco", "locomo"]),
        (["--tasks", "[locco, locomo]"], ["locco", "locomo"]),
        (["--tasks", "7", "a, b"], ["7", "a, b"]),
        (["--tasks+", "locomo"], ["locco", "locomo"]),
    ],
)
def test_lists_of_text(argv: list[str], expected: list[str]) -> None:
    assert parse("--output_dir", "out", *argv).tasks == expected


def test_lists_of_numbers_and_null() -> None:
    assert parse("--output_dir", "out", "--seeds", "0", "1").seeds == [0, 1]
    assert parse("--output_dir", "out", "--seeds", "0", "1", "--seeds", "null").seeds is None


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("stpes: 5", ["unknown key 'stpes'", "Did you mean 'steps'?"]),
        ("model:\n  alhpa: 0.1", ["unknown key 'model.alhpa'", "Did you mean 'model.alpha'?"]),
        ("model:\n  lora:\n    rank: 4", ["unknown key 'model.lora.rank'"]),
        ("steps: five", ["steps: expected int, got 'five'"]),
        ("steps: 2.5", ["steps: expected int, got 2.5"]),
        ("steps:", ["steps: expected int, got null"]),
        ("mode: slow", ["mode: expected one of 'fast', 'full', got 'slow'"]),
        ("tasks: locco", ["tasks: expected a list of str, got 'locco'"]),
        ("seeds: [1, b]", ["seeds: expected a list of int or null, got [1, 'b']"]),
        ("model: 5", ["model: expected settings as 'key: value', got 5"]),
        ("model:\n  lora:", ["model.lora: expected settings as 'key: value', got null"]),
        ("- 1", ["expected settings as 'key: value', got [1]"]),
        ("", ["expected settings as 'key: value', got null"]),
        ("steps: [5\nmode: }", ["not valid YAML", "bad.yaml", "line 2"]),
    ],
)
def test_bad_file_is_one_line_that_names_file_key_and_value(write, text: str, parts: list[str]) -> None:
    good = write("good.yaml", "output_dir: out\n")
    bad = write("bad.yaml", text)
    with pytest.raises(UserError) as caught:
        parse("--config", good, "--config", bad)
    message = str(caught.value)
    assert message.startswith(f"config file {bad}: ")
    assert "\n" not in message
    for part in parts:
        assert part in message


def test_missing_file() -> None:
    with pytest.raises(UserError, match=r"config file nowhere\.yaml: no such file"):
        parse("--config", "nowhere.yaml")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--stpes", "4"], "unknown option '--stpes'. Did you mean '--steps'? See --help for all."),
        (["--step", "4"], "unknown option '--step'. Did you mean '--steps'? See --help for all."),
        (
            ["--model.lora.rr=4"],
            "unknown option '--model.lora.rr'. Did you mean '--model.lora.r'? See --help for all.",
        ),
        (["--steps", "x"], "command line: --steps: expected int, got 'x'"),
        (["--steps=null"], "command line: --steps: expected int, got 'null'"),
        (["--model.beta", "q"], "command line: --model.beta: expected float, got 'q'"),
        (["--seeds", "1", "b"], "command line: --seeds: expected a list of int or null, got '[1, b]'"),
        (["--steps"], "command line: argument --steps: expected one argument"),
        (["stray"], "command line: unrecognized arguments: stray"),
    ],
)
def test_bad_option_is_one_line(argv: list[str], message: str) -> None:
    with pytest.raises(UserError) as caught:
        parse("--output_dir", "out", *argv)
    assert str(caught.value) == message


def test_missing_required_setting_is_named() -> None:
    with pytest.raises(UserError, match="output_dir"):
        parse("--steps", "4")


def test_the_dataclass_has_the_last_word() -> None:
    with pytest.raises(UserError, match="steps must be at least 1, got 0"):
        parse("--output_dir", "out", "--steps", "0")
    with pytest.raises(UserError, match=r"alpha must be in \[0, 1\), got 2.0"):
        parse("--output_dir", "out", "--model.alpha", "2")


def test_dump_is_read_back_equal(write) -> None:
    config = Experiment(
        "out dir", MLMFConfig(fusion_layers=[2, 4], alpha_mode="scalar"), note="yes: 1", tasks=["a", "null"], seeds=[3]
    )
    config = replace(config, learning_rate=1e-5, data=Path("some/where"))
    assert parse("--config", write("dump.yaml", dump_config(config))) == config


def test_print_config_shows_the_resolved_settings(write, capsys: pytest.CaptureFixture[str]) -> None:
    file = write("a.yaml", "output_dir: out\nsteps: 5\n")
    with pytest.raises(SystemExit) as stop:
        parse("--print_config", "--config", file, "--model.lora.r", "2")
    assert stop.value.code == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert shown["steps"] == 5
    assert shown["model"]["lora"]["r"] == 2
    assert shown["mode"] == "fast"


def test_help_is_the_string_under_each_field(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        parse("--help")
    assert stop.value.code == 0
    printed = capsys.readouterr().out
    assert printed.endswith("\n\n  train.py --steps 1\n  train.py\n")
    shown = " ".join(printed.split())
    assert "Optimiser steps, at least one. (type: int, default: 3)" in shown
    assert "Episodic decay (eq. 5)" in shown


def test_schema_and_parser_import_no_model_library() -> None:
    code = "import sys, mlmf.config, mlmf.config.parse; print(*{'torch', 'transformers', 'datasets'} & {*sys.modules})"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == ""


@pytest.fixture
def no_handlers():
    loggers = [logging.getLogger(name) for name in ("mlmf", "__main__")]
    before = [(logger, list(logger.handlers), logger.level) for logger in loggers]
    yield
    for logger, handlers, level in before:
        logger.handlers[:] = handlers
        logger.setLevel(level)


@pytest.mark.usefixtures("no_handlers")
def test_run_script_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> int:
        raise UserError("data.json: record 3: no text")

    def interrupt() -> int:
        raise KeyboardInterrupt

    def work() -> int:
        logging.getLogger("mlmf.training").info("step 1")
        return 0

    codes = []
    for main in (fail, interrupt, work):
        with pytest.raises(SystemExit) as stop:
            run_script(main)
        codes.append(stop.value.code)
    assert codes == [2, 130, 0]
    captured = capsys.readouterr()
    assert "error: data.json: record 3: no text\n" in captured.err
    assert "step 1\n" in captured.err
    assert captured.out == ""


@pytest.mark.usefixtures("no_handlers")
def test_run_script_lets_bugs_through() -> None:
    def broken() -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_script(broken)
