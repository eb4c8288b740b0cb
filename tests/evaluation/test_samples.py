"""The answers of a run survive its interruption, and answers of different settings never mix."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlmf.errors import UserError
from mlmf.evaluation.samples import Sample, SampleFile, read_samples, sole_writer

SETTINGS = {"system": "spy", "seed": 0, "window_tokens": None}


def sample(index: int, **changes: object) -> Sample:
    # the line separator U+2028 ends a line for str.splitlines, not in JSON Lines
    values = {"prediction": "un caf\u00e9 \u2028 noir", "gates": {"working": 1.0}, "recalled": ("a",)}
    return Sample("c", index, f"c#{index}", "Who?", **(values | changes))  # type: ignore[arg-type]


def test_samples_come_back_as_they_were(tmp_path: Path) -> None:
    file = SampleFile(tmp_path, SETTINGS)
    file.append([sample(0), sample(1)])
    file.append([sample(2, status="error", error="why", prediction=None)])
    assert read_samples(file.path) == [
        sample(0), sample(1), sample(2, status="error", error="why", prediction=None),
    ]  # fmt: skip


def test_opening_writes_nothing(tmp_path: Path) -> None:
    SampleFile(tmp_path / "new", SETTINGS)
    assert not (tmp_path / "new").exists()


def test_a_line_cut_by_an_interruption_is_dropped_and_the_file_continues_cleanly(tmp_path: Path) -> None:
    SampleFile(tmp_path, SETTINGS).append([sample(0), sample(1)])
    path = tmp_path / "samples.jsonl"
    # cut within the two bytes of an accented letter
    path.write_bytes(path.read_bytes().rpartition("\u00e9".encode())[0] + b"\xc3")
    file = SampleFile(tmp_path, SETTINGS)
    assert list(file.finished) == [("c", 0, 0)]
    file.append([sample(1)])
    assert read_samples(path) == [sample(0), sample(1)]


def test_failed_samples_are_asked_again(tmp_path: Path) -> None:
    SampleFile(tmp_path, SETTINGS).append([sample(0), sample(1, status="error", error="why")])
    file = SampleFile(tmp_path, SETTINGS)
    assert list(file.finished) == [("c", 0, 0)]
    file.append([sample(1)])
    assert read_samples(file.path) == [sample(0), sample(1)]


def test_other_settings_are_refused_by_name_and_the_file_stays(tmp_path: Path) -> None:
    SampleFile(tmp_path, SETTINGS).append([sample(0)])
    before = (tmp_path / "samples.jsonl").read_bytes()
    with pytest.raises(UserError, match=r"samples.jsonl .*\(seed: 0 -> 1\).*--overwrite true"):
        SampleFile(tmp_path, SETTINGS | {"seed": 1})
    assert (tmp_path / "samples.jsonl").read_bytes() == before


def test_overwrite_starts_anew(tmp_path: Path) -> None:
    SampleFile(tmp_path, SETTINGS).append([sample(0)])
    file = SampleFile(tmp_path, SETTINGS | {"seed": 1}, overwrite=True)
    assert file.finished == {}
    file.append([sample(5)])
    assert read_samples(file.path) == [sample(5)]
    assert list(SampleFile(tmp_path, SETTINGS | {"seed": 1}).finished) == [("c", 5, 0)]


@pytest.mark.parametrize("content", [None, "{broken"])
def test_samples_of_unknown_origin_are_refused(tmp_path: Path, content: str | None) -> None:
    SampleFile(tmp_path, SETTINGS).append([sample(0)])
    settings = tmp_path / "settings.json"
    settings.unlink() if content is None else settings.write_text(content)
    with pytest.raises(UserError, match=r"settings\.json is (missing|broken)"):
        SampleFile(tmp_path, SETTINGS)


@pytest.mark.parametrize("line", ["{}", "not json", '{"conversation_id": "c", "surprise": 1}', "[]"])
def test_a_broken_line_is_named(tmp_path: Path, line: str) -> None:
    SampleFile(tmp_path, SETTINGS).append([sample(0)])
    path = tmp_path / "samples.jsonl"
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(UserError, match=r"samples\.jsonl:2: not a sample"):
        SampleFile(tmp_path, SETTINGS)


def test_a_folder_has_one_writer_at_a_time(tmp_path: Path) -> None:
    folder = tmp_path / "locco" / "spy"
    with sole_writer(folder):
        with sole_writer(tmp_path / "locco" / "other"):
            pass
        with (
            pytest.raises(UserError, match=r"locco/spy: another run .* wait until it ends, or give another"),
            sole_writer(folder),
        ):
            pytest.fail("the folder was given away twice")
    with pytest.raises(RuntimeError, match="boom"), sole_writer(folder):
        raise RuntimeError("boom")
    with sole_writer(folder):
        assert folder.is_dir()
