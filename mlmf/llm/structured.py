"""Replies as data: validated by a pydantic model, repaired once, else an error that the caller counts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from mlmf.llm.chat import ChatModel, Message

T = TypeVar("T", bound=BaseModel)

_FENCED = re.compile(r"```(?:json)?\s*\n(.*?)```", re.DOTALL | re.IGNORECASE)
_SHOWN_CHARACTERS = 200


class StructuredOutputError(Exception):
    """A reply is not what was asked for, not even after the model was shown why."""


def ask_for(model: ChatModel, messages: Sequence[Message], schema: type[T], max_new_tokens: int) -> T:
    """Ask a model for JSON and return it as ``schema``.

    Args:
        model: decoding is constrained to the schema where it can be.
        messages: the conversation; its last message says what JSON is wanted.
        schema: a pydantic model. Fields it does not have are an error only where it forbids them.
        max_new_tokens: the most tokens of a reply, and of its repair.

    Raises:
        StructuredOutputError: neither the reply nor its repair is valid.
        ChatError: there was no reply.
        UserError: the model cannot be reached.
    """
    conversation = list(messages)
    reply = model.chat([conversation], max_new_tokens, schema=schema)[0].text
    try:
        return parse(reply, schema)
    except ValidationError as error:
        request = f"This is not valid: {_reasons(error)} Reply again with the corrected JSON alone."
    repair = [*conversation, Message("assistant", reply), Message("user", request)]
    repaired = model.chat([repair], max_new_tokens, schema=schema)[0].text
    try:
        return parse(repaired, schema)
    except ValidationError as error:
        raise StructuredOutputError(
            f"{model.name} wrote no valid {schema.__name__}, twice: {_reasons(error)} Its last reply: "
            f"{repaired[:_SHOWN_CHARACTERS]!r}"
        ) from error


def parse(reply: str, schema: type[T]) -> T:
    """Read the one JSON object of a reply; prose or a code fence around it is passed over.

    Raises:
        ValidationError: no object, a broken one, more than one, or one that does not fit the schema.
    """
    fenced = _FENCED.findall(reply)
    text = fenced[0] if len(fenced) == 1 else reply
    # from the first brace to the last: of two objects neither is trusted, they fail together
    start, end = text.find("{"), text.rfind("}")
    return schema.model_validate_json(text[start : end + 1] if 0 <= start < end else text)


def says_something(text: str) -> bool:
    """Whether a text field holds a letter or digit; small models copy the ``...`` of the form they are shown."""
    return any(character.isalnum() for character in text)


def _reasons(error: ValidationError) -> str:
    """The errors of a validation in one line, each with the field it is about."""
    lines = []
    for one in error.errors(include_url=False, include_input=False, include_context=False):
        where = ".".join(map(str, one["loc"]))
        lines.append(f"{where}: {one['msg']}." if where else f"{one['msg']}.")
    return " ".join(lines)
