from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from mlmf.config.model import MLMFConfig
from mlmf.errors import UserError
from mlmf.memory.entities import SpacyExtractor, entity_extractor, extract_by_rules
from mlmf.memory.multilayer import MultiLayerMemory


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('We saw "Blue Velvet" at The Indie Pulse with Sarah.', ("blue velvet", "the indie pulse", "sarah")),
        ("I went to New York with Maria and Tom.", ("new york", "maria", "tom")),
        ("He liked the Museum of Modern Art.", ("museum of modern art",)),
        ("Sarah\u2019s here, \u201cLa Strada\u201d too", ("la strada", "sarah")),
        ("What a day! It was so nice, thanks.", ()),
        ("Sarah met Sarah", ("sarah",)),
        ("nothing here is named", ()),
        ("", ()),
    ],
)
def test_names_and_titles(text: str, expected: tuple[str, ...]) -> None:
    assert extract_by_rules(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("my sister sold the old boat", ("sister", "boat")),
        ("I bought a really nice red bicycle", ("bicycle",)),
        ("The exam went badly, the exams always do", ("exam",)),
        ("her friend's classes in the big cities", ("friend", "city")),
        ("photography and friendship need dedication", ("photography", "friendship", "dedication")),
        ("it was the best of times, the end of my week", ("end",)),
        ("that sounds great, this must be fun", ()),
    ],
)
def test_heads_of_noun_phrases(text: str, expected: tuple[str, ...]) -> None:
    assert extract_by_rules(text) == expected


def test_speakers_are_found_however_they_are_written() -> None:
    assert extract_by_rules("thanks ben, see you with ANNA", ["Anna", "Ben", "Cy"]) == ("anna", "ben")
    assert "ben" not in extract_by_rules("a benefit concert", ["Ben"])
    assert extract_by_rules("So Mel (jr.) came", ["Mel (jr.)"])[0].startswith("mel")


class Pipeline:
    """Stands in for a loaded spaCy pipeline: the same attributes of a parsed text, made by hand."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, text: str) -> Any:
        self.calls += 1
        place, day = SimpleNamespace(text="Oslo", label_="GPE"), SimpleNamespace(text="yesterday", label_="DATE")
        noun = SimpleNamespace(root=SimpleNamespace(lemma_="cat", pos_="NOUN"))
        pronoun = SimpleNamespace(root=SimpleNamespace(lemma_="I", pos_="PRON"))
        return SimpleNamespace(ents=[place, day], noun_chunks=[pronoun, noun])


def test_spacy_gives_entities_speakers_and_noun_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline, module = Pipeline(), ModuleType("spacy")
    module.load = lambda name: pipeline if name == "en_core_web_sm" else None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "spacy", module)
    extract = entity_extractor("spacy")
    for _ in range(2):
        assert extract("I took my cats to Oslo, ben", ["Anna", "Ben"]) == ("oslo", "ben", "cat")
    assert pipeline.calls == 1, "a text is parsed once"


def test_spacy_missing_is_said_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "spacy", None)  # import raises ImportError
    with pytest.raises(UserError, match=r"pip install 'mlmf\[spacy\]', or set entities: rules"):
        MultiLayerMemory(MLMFConfig(entities="spacy"), [], 16, 9)


def test_spacys_model_missing_is_said_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str) -> None:
        raise OSError(f"[E050] Can't find model '{name}'.")

    module = ModuleType("spacy")
    module.load = load  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "spacy", module)
    with pytest.raises(UserError, match="python -m spacy download en_core_web_md"):
        SpacyExtractor("en_core_web_md")


def test_rules_need_nothing() -> None:
    assert entity_extractor("rules") is extract_by_rules
