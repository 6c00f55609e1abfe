"""Folders of models with tokenizers and chat templates, and requests for them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.chat_parts import NOW, SPECIAL_TOKENS, TEMPLATES
from tests.kv_parts import trained_byte_level
from tokenizers import Tokenizer, processors

from axiom_common.model.ids import BASE
from axiom_common.model.prefix import PromptText, Untold
from axiom_gateway.openai_requests import Endpoint, parse
from axiom_gateway.prompt_text import PromptTexts
from axiom_gateway.settings import PromptSettings

THEN = datetime.fromisoformat(NOW)


def tokenizer_with_beginning() -> str:
    """Puts `<s>` before a prompt, which it may not know as one token otherwise."""
    tokenizer = Tokenizer.from_str(trained_byte_level())
    tokenizer.add_special_tokens([*SPECIAL_TOKENS.values()])
    number = tokenizer.token_to_id("<s>")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", number)]
    )
    return str(tokenizer.to_str())


def model_folder(folder: Path, tokenizer: str, template: object = None, **config: Any) -> Path:
    """A model's folder, its special tokens in the config."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(tokenizer)
    told = {**SPECIAL_TOKENS, **config} | ({} if template is None else {"chat_template": template})
    (folder / "tokenizer_config.json").write_text(json.dumps(told))
    return folder


def texts_in(
    folder: Path,
    templates: Mapping[str, object] = TEMPLATES,
    now: Callable[[], datetime] = lambda: THEN,
) -> PromptTexts:
    """One base model for each template, all with one tokenizer."""
    tokenizer = tokenizer_with_beginning()
    return PromptTexts(
        [
            PromptSettings(
                base_model=name, tokenizer=model_folder(folder / name, tokenizer, template)
            )
            for name, template in templates.items()
        ],
        now,
    )


def told_of(
    texts: PromptTexts,
    base_model: str,
    body: Mapping[str, Any],
    endpoint: Endpoint = Endpoint.CHAT,
    **others: Any,
) -> PromptText | Untold:
    """What is told of a request, as the gateway parses it."""
    request = parse(endpoint, json.dumps({"model": "m", **body}).encode())
    return texts.text_of(endpoint, base_model, BASE, request.members, **others)


def text_of(
    texts: PromptTexts,
    base_model: str,
    body: Mapping[str, Any],
    endpoint: Endpoint = Endpoint.CHAT,
) -> str:
    """The text of a request that has one."""
    told = told_of(texts, base_model, body, endpoint)
    assert isinstance(told, PromptText), told
    return told.text.decode()
