"""From settings to a memory: the models that the stages name are loaded here and nowhere else."""

from __future__ import annotations

from mlmf.config.cognis import CognisSettings
from mlmf.retrieval.encoder import Encoder
from mlmf.systems.cognis.extract import Extractor, RuleExtractor
from mlmf.systems.cognis.memory import CognisMemory


def build_cognis(
    settings: CognisSettings,
    encoder: Encoder,
    *,
    encoder_name: str,
    base_model: str | None = None,
    device: str | None = None,
) -> CognisMemory:
    """Load what the settings name and open the stores.

    Args:
        settings: of Cognis.
        encoder: of all texts.
        encoder_name: what the stores remember it by.
        base_model: the local model of ``extractor: llm`` where its own settings name none.
        device: by default CUDA where there is one.

    Raises:
        UserError: a model cannot be loaded, or a store cannot be opened.
    """
    reranker = None
    if settings.reranker is not None:
        from mlmf.retrieval.rerank import CrossEncoderReranker

        reranker = CrossEncoderReranker(settings.reranker, device=device)
    extractor: Extractor = RuleExtractor()
    if settings.extractor == "llm":
        from mlmf.llm.load import load_chat_model
        from mlmf.systems.cognis.extract_llm import LLMExtractor

        model = load_chat_model(settings.llm, default_model=base_model, device=device)
        extractor = LLMExtractor(model, max_new_tokens=settings.llm_tokens)
    return CognisMemory(encoder, encoder_name=encoder_name, settings=settings, extractor=extractor, reranker=reranker)
