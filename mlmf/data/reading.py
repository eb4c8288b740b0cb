"""JSON files in, checked records out: the one place where what is wrong with a file becomes a sentence."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, ValidationError

from mlmf.data.dates import parse_date
from mlmf.errors import UserError

RecordT = TypeVar("RecordT", bound="Record")
KeyT = TypeVar("KeyT", bound=Hashable)


class Record(BaseModel):
    """Base of the file schemas: types are never coerced (``"5"`` is no integer), unknown keys are ignored."""

    model_config = ConfigDict(strict=True)


class ExactRecord(Record):
    """A schema of our own formats: an unknown key is a typing error somebody should hear of."""

    model_config = ConfigDict(strict=True, extra="forbid")


def _encodable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:  # JSON may escape half of a pair, and every tokenizer stumbles over it later
        raise ValueError(f"holds {text[error.start]!a}, which is half of a character") from error
    return text


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError(f"must not be empty, got {text!r}")
    return text


def _date_or_none(value: object) -> object:
    return parse_date(value) if isinstance(value, str) else value


Text = Annotated[str, AfterValidator(_encodable)]
"""A string that can be written as UTF-8."""
NonBlank = Annotated[Text, AfterValidator(_not_blank)]
"""A string with at least one visible character."""
Date = Annotated[datetime, BeforeValidator(_date_or_none)]
"""A date in any form that :func:`mlmf.data.dates.parse_date` reads."""


def read_text(path: Path) -> str:
    """Read a UTF-8 file, with or without a byte order mark.

    Raises:
        UserError: no such file, a folder, or not UTF-8.
    """
    try:
        return decode(path.read_bytes(), path.name)
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error


def decode(data: bytes, name: str) -> str:
    """Decode UTF-8, with or without a byte order mark; ``name`` is what the error calls the file."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{name}: not UTF-8 (byte {error.start}); save it with UTF-8 encoding") from error


def parse_json(text: str, where: str) -> Any:
    """Parse JSON; ``where`` starts the message of the error, for example ``file.jsonl:12``."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise UserError(f"{where}: not valid JSON: {error.msg} ({place})") from error
    except RecursionError as error:
        raise UserError(f"{where}: not usable JSON: nested too deeply") from error
    except ValueError as error:
        raise UserError(f"{where}: not usable JSON: {error}") from error


def json_lines(text: str, name: str) -> Iterator[tuple[str, Any]]:
    """Parsed lines of a JSONL text as ``("name:line", value)``; blank lines are passed over."""
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            where = f"{name}:{number}"
            yield where, parse_json(line, where)


def checked(schema: type[RecordT], value: object, where: str, path: str = "", *, hint: str = "") -> RecordT:
    """Validate one record against a schema.

    Args:
        schema: the pydantic model it must fit.
        value: what the JSON file holds there.
        where: file and record, for example ``mine.jsonl:3``.
        path: place of ``value`` inside the record, for example ``qa[12]``.
        hint: the way out, put after the message.

    Raises:
        UserError: ``where: sessions[2].turns[0].text: ...``, with the value found; first fault only, and how many more.
    """
    try:
        return schema.model_validate(value)
    except ValidationError as error:
        faults = error.errors(include_url=False)
        first = faults[0]
        if first["type"] == "missing":
            message = "field missing"
        elif first["type"] == "extra_forbidden":
            message = "unknown field"
        elif first["type"] == "value_error":
            message = str(first["ctx"]["error"])  # our validators' own words, which name the value
        elif first["type"] == "model_type":
            message = f"must be a JSON object, got {shown(first['input'])}"
        else:
            message = f"{first['msg']}, got {shown(first['input'])}"
        more = f" (and {len(faults) - 1} more in this record)" if len(faults) > 1 else ""
        suffix = f". {hint}" if hint else ""
        place = _path(path, first["loc"])
        raise UserError(f"{where}: {f'{place}: ' if place else ''}{message}{more}{suffix}") from error


def unique(keys: Iterable[tuple[KeyT, str]], what: str) -> None:
    """Refuse a key that occurs twice.

    Args:
        keys: pairs of a key and where it stands.
        what: what the key names, for example ``conversation id``.

    Raises:
        UserError: the second place, the key and the first place.
    """
    seen: dict[KeyT, str] = {}
    for key, where in keys:
        if key in seen:
            raise UserError(f"{where}: {what} {key!r} is already used at {seen[key]}; each needs its own")
        seen[key] = where


def in_order(dates: Iterable[tuple[datetime | None, str]]) -> None:
    """Refuse sessions that are not in time order: a memory must never see the future first. Undated ones pass.

    Args:
        dates: pairs of a session's date and where it stands.

    Raises:
        UserError: the place and date of the first session that is earlier than one before it.
    """
    latest: tuple[datetime, str] | None = None
    for date, where in dates:
        if date is None:
            continue
        if latest and date < latest[0]:
            raise UserError(
                f"{where}: dated {date:%Y-%m-%d %H:%M}, earlier than {latest[1].rsplit(': ', 1)[-1]} "
                f"({latest[0]:%Y-%m-%d %H:%M}); put the sessions in time order"
            )
        latest = (date, where)


def shown(value: object) -> str:
    """A value as JSON for a message, cut after 80 characters."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _path(start: str, location: tuple[int | str, ...]) -> str:
    path = start
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path
