"""What a model's folder says of how engines make text of a request: templates, special tokens.

Read as transformers and vLLM 0.32 read it: `chat_template.jinja` and the folder
`additional_chat_templates` come before `chat_template` in `tokenizer_config.json`, which is one
template or a list of named ones; a processor's `chat_template.json` comes before all, for requests
without tools.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from axiom_common.drivers.tokenizer_shape import RefusedVocabularyError
from axiom_common.drivers.tokenizer_vocabulary import TokenizerVocabulary, read_vocabulary
from axiom_common.errors import InvalidInputError
from axiom_common.model.vocabulary import VocabularyRefusal

FILE_BYTES_MAX = 4 << 20
_NAMED = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)
_OWN_RENDERERS = (
    "DeepseekV32For",
    "DeepseekV4For",
    "DeepseekV41For",
    "GptOssFor",
    "InklingFor",
    "KimiK3For",
)
"""How architectures begin for which vLLM's code, and no template, makes the text of a chat."""
_DEFAULT, _TOOL_USE = "default", "tool_use"


class PromptFilesError(InvalidInputError):
    """A file that was named and can't be used."""

    code = "bad-prompt-files"


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptFiles:
    """`vocabulary`: None when it was refused, for the reason `refusal`. `special_tokens`: literals
    by the names that templates call them. `chat`, `chat_with_tools`: sources of the templates for
    requests without and with tools, None where there is none. `own_renderer`: engines make the
    text of this model's chats by other means."""

    vocabulary: TokenizerVocabulary | None
    refusal: VocabularyRefusal | None
    special_tokens: Mapping[str, str]
    chat: str | None
    chat_with_tools: str | None
    own_renderer: bool


def read_prompt_files(tokenizer: Path, chat_template: Path | None) -> PromptFiles:
    """From a model's folder, or its `tokenizer.json` there; `chat_template` is what the engines are
    started with, where they are. PromptFilesError when a named file can't be read; that the
    tokenizer gives no exact facts is none."""
    folder = tokenizer if tokenizer.is_dir() else tokenizer.parent
    vocabulary, refusal = None, None
    try:
        vocabulary = read_vocabulary(tokenizer)
    except RefusedVocabularyError as error:
        if error.refusal is VocabularyRefusal.UNREADABLE:
            raise PromptFilesError(str(error)) from error
        refusal = error.refusal
    config = _parsed(folder / "tokenizer_config.json")
    specials = dict(config)
    if "added_tokens_decoder" not in config:
        specials |= _parsed(folder / "special_tokens_map.json")
    templates = {_DEFAULT: _text(chat_template)} if chat_template else _templates(folder, config)
    return PromptFiles(
        vocabulary=vocabulary,
        refusal=refusal,
        special_tokens={
            name: literal
            for name in _NAMED
            if (literal := _literal(specials.get(name))) is not None
        },
        chat=templates.get(_DEFAULT),
        chat_with_tools=templates.get(_TOOL_USE, templates.get(_DEFAULT)),
        own_renderer=_has_own_renderer(folder),
    )


def _templates(folder: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """Sources by name."""
    told = config.get("chat_template")
    templates: dict[str, str] = {}
    if isinstance(told, str):
        templates[_DEFAULT] = told
    elif told is not None:
        templates |= _named_templates(told, folder)
    named = {_DEFAULT: folder / "chat_template.jinja"}
    named |= {file.stem: file for file in (folder / "additional_chat_templates").glob("*.jinja")}
    if any(file.is_file() for file in named.values()):
        templates = {name: _text(file) for name, file in named.items() if file.is_file()}
    processors = _parsed(folder / "chat_template.json").get("chat_template")
    if isinstance(processors, str) and not named[_DEFAULT].is_file():
        templates.setdefault(_TOOL_USE, templates.get(_DEFAULT, processors))
        templates[_DEFAULT] = processors
    return templates


def _named_templates(told: object, folder: Path) -> dict[str, str]:
    try:
        named = {one["name"]: one["template"] for one in told}  # type: ignore[attr-defined]
    except (TypeError, KeyError):
        named = {"": None}
    if not all(isinstance(text, str) for text in (*named, *named.values())):
        raise PromptFilesError(f"{folder}: chat_template in tokenizer_config.json is none")
    return named


def _has_own_renderer(folder: Path) -> bool:
    mistral = (folder / "tekken.json").is_file() or any(folder.glob("tokenizer.model.v*"))
    kinds = _parsed(folder / "config.json").get("architectures") or ()
    return mistral or any(str(kind).startswith(_OWN_RENDERERS) for kind in kinds)


def _literal(token: object) -> str | None:
    """A special token is told as its literal, or as an object with flags."""
    content = token.get("content") if isinstance(token, Mapping) else token
    return content if isinstance(content, str) else None


def _parsed(file: Path) -> dict[str, Any]:
    """A file's JSON object; an empty one where there is no file."""
    if not file.is_file():
        return {}
    try:
        parsed = json.loads(_text(file))
    except ValueError as error:
        raise PromptFilesError(f"{file} is not JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise PromptFilesError(f"{file} holds no JSON object")
    return parsed


def _text(file: Path) -> str:
    try:
        if file.stat().st_size > FILE_BYTES_MAX:
            raise PromptFilesError(f"{file} is larger than {FILE_BYTES_MAX} bytes")
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PromptFilesError(f"{file}: {error}") from error
