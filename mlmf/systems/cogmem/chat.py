"""CogMem as something to talk to: messages as OpenAI's clients send them go in, a reply comes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from mlmf.errors import UserError
from mlmf.llm.chat import ChatModel, Message
from mlmf.systems.cogmem import prompts
from mlmf.systems.cogmem.memory import CogMem
from mlmf.systems.cogmem.records import Insight, TurnRecord, open_notes, said_in_exchange
from mlmf.systems.cogmem.sessions import Exchange, State

# what a chat template writes around each message, generously
_TEMPLATE_TOKENS = 32
_ROLES: dict[str, Literal["system", "user", "assistant"]] = {
    "system": "system",
    "user": "user",
    "assistant": "assistant",
}
_Messages = Sequence[Message | Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class ChatReply:
    """A reply, and how it came about."""

    text: str
    state: State
    """Whether it was stored (``exact``), or the session ``inherited`` a stored dialogue or is ``new``."""
    prompt_tokens: int = 0
    """Tokens the reasoning agent read to answer; none where the reply was stored."""
    new_tokens: int = 0
    recalled: tuple[str, ...] = ()
    """Labels of the turns that the agent read in full."""


class CogMemChat:
    """Talks to one user. The memory may be shared with the chats of any number of others."""

    def __init__(
        self, memory: CogMem, model: ChatModel, *, user: str = "user", system: str = "", max_new_tokens: int = 256
    ) -> None:
        """Begin to talk.

        Args:
            memory: all that is remembered.
            model: the reasoning agent.
            user: whose memory is used; nothing of another user's is ever seen.
            system: instructions for :meth:`respond`.
            max_new_tokens: the longest reply.
        """
        self._memory, self._model, self._user = memory, model, user
        self._max_new_tokens = max_new_tokens
        self._messages = [Message("system", system)] if system else []
        self._beginning = len(self._messages)
        self._session: str | None = None
        if memory.direct_access is not None:
            memory.direct_access.recover(user)

    def respond(self, turn: str) -> str:
        """Reply to the user's next turn of the session that this chat is in."""
        self._messages.append(Message("user", turn))
        try:
            text = self.chat(self._messages).text
        except BaseException:
            self._messages.pop()
            raise
        self._messages.append(Message("assistant", text))
        return text

    def end_session(self, *, wait: bool = True) -> None:
        """End the session: long-term memory takes in what it is worth, and the next turn begins another.

        Args:
            wait: come back when that is done; else it is done in the background.
        """
        if self._session is not None:
            self._memory.sessions.end(self._user, self._session)
            self._memory.clean_up(self._user, wait=wait)
        self._session = None
        del self._messages[self._beginning :]

    def chat(self, messages: _Messages) -> ChatReply:
        """Reply to a whole conversation.

        Args:
            messages: an optional system message, then the user's and the assistant's in turn, the user's last. Each a
                :class:`Message` or a mapping with ``role`` and ``content``. What of it is stored is found again, so the
                model reads a window, not the conversation.

        Raises:
            UserError: the messages are not such a conversation, or the last one does not fit into the model's window.
        """
        system, dialogue, asked = split_messages(messages)
        memory, user = self._memory, self._user
        memory.clean_up(user)
        found = memory.sessions.find(user, dialogue, asked, opening=system)
        session = found.session
        if found.reply is not None:
            self._session = session.id
            return ChatReply(found.reply, found.state)
        if found.turns:
            insights = memory.stored_insights(user, found.turns)
        else:
            insights = memory.insights_for(user, [dialogue[0][0] if dialogue else asked])[0]
        kept = [insight.id for insight in insights]
        for said, reply in found.unknown:
            said_there = said_in_exchange(said, reply)
            session, _ = memory.add(user, session, said_there, asked=said, reply=reply, insights=kept, opening=system)
        turns = memory.read(user, session.head)
        prompt, recalled = self._prompt(system, asked, turns, insights)
        answer = self._model.chat([prompt], self._max_new_tokens)[0]
        session, _ = memory.add(
            user,
            session,
            said_in_exchange(asked, answer.text),
            asked=asked,
            reply=answer.text,
            insights=kept,
            opening=system,
        )
        self._session = session.id
        return ChatReply(answer.text, found.state, answer.prompt_tokens, answer.new_tokens, recalled)

    def _prompt(
        self, system: str, asked: str, turns: Sequence[TurnRecord], insights: Sequence[Insight]
    ) -> tuple[list[Message], tuple[str, ...]]:
        focus = self._memory.focus
        instructions = "\n\n".join(part for part in (prompts.REASONING_AGENT if focus else "", system) if part)
        room = self._room(instructions, asked)
        head = [Message("system", instructions)] if instructions else []
        if focus is None:
            shown = self._latest(turns, room)
            messages = [message for turn in shown for message in _as_messages(turn)]
            return [*head, *messages, Message("user", asked)], tuple(turn.label for turn in shown)
        window = focus.window(asked, turns, open_notes(turns), insights, room=room)
        message = Message("user", prompts.reply(window.text, asked))
        return [*head, message], tuple(turn.label for turn in window.turns)

    def _room(self, instructions: str, asked: str) -> int:
        count = self._model.count_tokens
        used = count(instructions) + count(prompts.reply(" ", asked)) + 2 * _TEMPLATE_TOKENS
        room = self._model.context_window - used - self._max_new_tokens
        if room < 0:
            raise UserError(
                f"a message of {count(asked)} tokens does not fit into the window of {self._model.name}, "
                f"{self._model.context_window} tokens, beside a reply of {self._max_new_tokens}; send it in parts"
            )
        return room

    def _latest(self, turns: Sequence[TurnRecord], room: int) -> list[TurnRecord]:
        """The baseline: the dialogue as it was, without its oldest turns where it exceeds the model's window."""
        start = len(turns)
        while start:
            messages = _as_messages(turns[start - 1])
            room -= sum(self._model.count_tokens(message.content) + _TEMPLATE_TOKENS for message in messages)
            if room < 0:
                break
            start -= 1
        return list(turns[start:])


def split_messages(messages: _Messages) -> tuple[str, list[Exchange], str]:
    """A conversation as its system message, its exchanges and the new input.

    Raises:
        UserError: the messages do not come in turn, beginning and ending with the user's.
    """
    read = [message if isinstance(message, Message) else _message(message) for message in messages]
    system = read.pop(0).content if read and read[0].role == "system" else ""
    expected = ["user" if place % 2 == 0 else "assistant" for place in range(len(read))]
    for place, (message, role) in enumerate(zip(read, expected, strict=True), start=1):
        if message.role != role:
            raise UserError(
                f"message {place}: its role is {message.role!r}, expected {role!r}; after an optional system message "
                "user and assistant take turns"
            )
    if len(read) % 2 == 0:
        raise UserError("the conversation must end with a message of the user")
    contents = [message.content for message in read]
    return system, list(zip(contents[:-1:2], contents[1::2], strict=True)), contents[-1]


def _message(mapping: Mapping[str, str]) -> Message:
    role, content = mapping.get("role"), mapping.get("content")
    if role not in _ROLES or not isinstance(content, str):
        raise UserError(f"a message needs the role system, user or assistant and a text as content, got {mapping!r}")
    return Message(_ROLES[role], content)


def _as_messages(turn: TurnRecord) -> list[Message]:
    return [Message("user", turn.said[0].text), Message("assistant", turn.reply)]
