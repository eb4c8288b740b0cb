"""Models of ``sentence-transformers``, loaded in one way for encoders, rerankers and judges: by name, from safetensors alone."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from safetensors import SafetensorError

from mlmf.errors import UserError
from mlmf.hub import ModelKind, first_line, no_progress_bar, resolve_model

_NOUNS = {"SentenceTransformer": "sentence encoder", "CrossEncoder": "cross-encoder"}


def load_sentence_model(
    class_name: Literal["SentenceTransformer", "CrossEncoder"], name: str, kind: ModelKind, *, device: str | None
) -> tuple[Any, Path]:
    """Load a model, in float32 whatever the machine: rankings and verdicts are then the same everywhere.

    Args:
        class_name: of ``sentence-transformers``.
        name: known name, local folder or Hugging Face id.
        kind: the setting that names it.
        device: by default CUDA where there is one.

    Returns:
        The model, and the folder of its weights.

    Raises:
        UserError: the extra ``retrieval`` is not installed, or the weights cannot be found or loaded.
    """
    try:
        library = import_module("sentence_transformers")
    except ImportError as error:
        raise UserError(
            f"{kind.setting} {name!r} needs sentence-transformers, which is not installed: pip install 'mlmf[retrieval]'"
        ) from error
    folder = resolve_model(name, kind)
    try:
        with no_progress_bar():
            model = getattr(library, class_name)(
                str(folder),
                device=device,
                local_files_only=True,
                model_kwargs={"use_safetensors": True, "dtype": "float32"},
            )
    except (OSError, ValueError, SafetensorError) as error:
        noun = _NOUNS[class_name]
        raise UserError(
            f"{kind.setting} {name!r}: no {noun} can be loaded from {folder}: {first_line(error)}"
        ) from error
    return model, folder
