"""What text an engine makes of a request, so that facts about text can be compared with it.

What is copied of a body: its prompt is decoded from JSON (once), a chat's messages are rendered
(pieces, then joined), and the text is encoded as UTF-8 (once; scanned once more where it is not
ASCII). Nothing else of the body is read, but for members that say how to render.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from axiom_common.drivers.chat_template import (
    MARK,
    BadTemplateError,
    ChatTemplate,
    NotRenderedError,
    OverLimitError,
    compiled,
)
from axiom_common.drivers.prompt_files import PromptFiles, PromptFilesError, read_prompt_files
from axiom_common.drivers.tokenizer_vocabulary import TokenizerVocabulary, TooLongError
from axiom_common.errors import SettingsError
from axiom_common.model.ids import BASE, EngineAdapter
from axiom_common.model.prefix import FINE_CHUNK_BYTES, PrefixScope, PromptText, Untold
from axiom_common.model.vocabulary import VocabularyRefusal
from axiom_gateway.chat_messages import MalformedError, TooManyError, UnsureError
from axiom_gateway.chat_values import ChatValues, chat_values, continued
from axiom_gateway.openai_requests import Endpoint
from axiom_gateway.prompt_fields import Members, is_heavy, read, size_of, untold_by
from axiom_gateway.settings import PromptSettings

PROMPT_BYTES_MAX = 4 << 20
"""Of JSON that a prompt is made from; what is larger is not rendered, for others wait meanwhile."""
TOKENS_MAX = 4_096
"""Of a prompt of token ids, that are looked at; what lies beyond is not credited."""
SALT_CHARS_MAX = 128
SCOPES_MAX = 4_096
TOKENIZER_REFUSED = "tokenizer-refused"
_NO_WORD = {"messages": msgspec.Raw(b'[{"role":"user","content":""}]')}


@dataclass(frozen=True, slots=True)
class _Model:
    """How a base model's prompts become text. `beginning`: what engines put before a prompt, None
    where that has no exact text."""

    vocabulary: TokenizerVocabulary | None
    refusal: VocabularyRefusal | None
    revision: str
    beginning: bytes | None
    special_tokens: Mapping[str, str]
    chat: ChatTemplate | Untold
    chat_with_tools: ChatTemplate | Untold


class _Text(NamedTuple):
    """As in `PromptText`."""

    text: bytes
    is_cut: bool


class PromptTexts:
    """Texts of requests for the base models whose tokenizers are set. One in a gateway, not for
    several threads at once."""

    def __init__(
        self,
        prompts: Iterable[PromptSettings],
        now: Callable[[], datetime] = datetime.now,
    ) -> None:
        """Reads the files; SettingsError where they can't be used. `now`: in the time zone of the
        engines, for templates that tell the date."""
        self._models = {one.base_model: _model_of(one) for one in prompts}
        self._now = now
        self._framing_bytes = {name: self._framing_of(name) for name in self._models}

    def __contains__(self, base_model: str) -> bool:
        return base_model in self._models

    @property
    def refusals(self) -> Mapping[str, VocabularyRefusal]:
        """Base models whose tokenizer gives no exact facts, and why. Their text is as rendered, for
        predicted facts only."""
        return {name: m.refusal for name, m in self._models.items() if m.refusal is not None}

    def degraded(self) -> tuple[str, ...]:
        """What is not as it should be, by stable names."""
        return (TOKENIZER_REFUSED,) if self.refusals else ()

    def revision_of(self, base_model: str) -> str | None:
        """Of the tokenizer, as agents tell it; None where facts can't be exact."""
        model = self._models.get(base_model)
        return model.revision if model is not None and model.vocabulary is not None else None

    def is_short(self, endpoint: Endpoint, base_model: str, members: Members) -> bool:
        """Whether a prompt is so short that its text fills no chunk: most likely, and known without
        rendering it. A template may make more of many messages; that costs credit for a chunk."""
        if endpoint is Endpoint.COMPLETIONS and bytes(memoryview(members["prompt"])[:1]) != b'"':
            return False
        return size_of(members) + self._framing_bytes[base_model] < FINE_CHUNK_BYTES

    def text_of(
        self,
        endpoint: Endpoint,
        base_model: str,
        adapter: EngineAdapter,
        members: Members,
        tenant_salt: str | None = None,
    ) -> PromptText | Untold:
        """The text of a request's prompt, as far as it is known, or why none is.

        `members`: of the body, as the engine gets them. `tenant_salt`: the engine's cache salt for
        this tenant, which goes before one of the request's own.
        """
        model = self._models.get(base_model)
        if model is None:
            return Untold.NO_TOKENIZER
        untold = untold_by(endpoint, members)
        if untold is not None:
            return untold
        try:
            salt = tenant_salt or read(members, "cache_salt", str)
            if salt is not None and not 0 < len(salt) <= SALT_CHARS_MAX:
                return Untold.MALFORMED
            if size_of(members) > PROMPT_BYTES_MAX or is_heavy(members):
                return Untold.OVER_LIMIT
            text = (
                self._chat(model, members) if endpoint is Endpoint.CHAT else _prompt(model, members)
            )
        except (msgspec.MsgspecError, MalformedError, RecursionError, UnicodeError):
            return Untold.MALFORMED
        except UnsureError:
            return Untold.FIELD
        except (OverLimitError, TooLongError, TooManyError):
            return Untold.OVER_LIMIT
        except NotRenderedError:
            return Untold.TEMPLATE
        if isinstance(text, Untold):
            return text
        return PromptText(_seed(base_model, model.revision, adapter, salt), *text)

    def _framing_of(self, base_model: str) -> int:
        """The bytes that a template puts around one message without a word."""
        text = self.text_of(Endpoint.CHAT, base_model, BASE, _NO_WORD)
        return len(text.text) if isinstance(text, PromptText) else 0

    def _chat(self, model: _Model, members: Members) -> _Text | Untold:
        values = chat_values(members)
        template = model.chat if values.tools is None else model.chat_with_tools
        if isinstance(template, Untold):
            return template
        now = self._now()
        text, marked = (
            None if messages is None else self._rendered(model, template, values, messages, now)
            for messages in values.conversation(template, MARK)
        )
        assert text is not None
        if marked is not None:
            text = text[: _common(text, marked)]
        cut = text.find(MARK)
        told = _normalised(model, text if cut < 0 else text[:cut])
        is_cut = cut >= 0 or marked is not None
        return _begun(model, told, is_cut) if values.adds_special_tokens else _Text(told, is_cut)

    def _rendered(
        self,
        model: _Model,
        template: ChatTemplate,
        values: ChatValues,
        messages: list[dict[str, Any]],
        now: datetime,
    ) -> str:
        variables = {**model.special_tokens, **values.variables(template.names)}
        if not values.continues_final:
            return template.render({**variables, "messages": messages}, now)
        open_ended, last = continued(messages, template.source)
        return last.cut_from(template.render({**variables, "messages": open_ended}, now))


def _prompt(model: _Model, members: Members) -> _Text | Untold:
    prompt = read(members, "prompt", str | list[str | int | list[int]])
    if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int):
        if len(prompt) > 1:
            return Untold.SEVERAL_PROMPTS
        prompt = prompt[0]
    if isinstance(prompt, str):
        adds = read(members, "add_special_tokens", bool)
        told = _normalised(model, prompt)
        return _Text(told, False) if adds is False else _begun(model, told, False)
    return _of_tokens(model, prompt) if prompt else Untold.MALFORMED


def _of_tokens(model: _Model, tokens: list[Any]) -> _Text | Untold:
    """The text of tokens, as far as they are those that the tokenizer would choose for it: facts
    tell of those only."""
    vocabulary = model.vocabulary
    if vocabulary is None:
        return Untold.TOKENS
    known = tokens[:TOKENS_MAX]
    if not all(isinstance(token, int) and token >= 0 for token in known):
        return Untold.MALFORMED
    text = vocabulary.text_of(known)
    if text is None:
        return Untold.TOKENS
    chosen = vocabulary.encoded(text.decode(errors="ignore"))[0]
    alike = next(
        (n for n, (a, b) in enumerate(zip(known, chosen, strict=False)) if a != b),
        min(len(known), len(chosen)),
    )
    text = vocabulary.text_of(known[:alike])
    return _Text(text, alike < len(tokens)) if text else Untold.TOKENS


def _begun(model: _Model, text: bytes, is_cut: bool) -> _Text | Untold:
    return Untold.TOKENS if model.beginning is None else _Text(model.beginning + text, is_cut)


def _normalised(model: _Model, text: str) -> bytes:
    if model.vocabulary is not None:
        return model.vocabulary.normalised(text)
    return text.encode("utf-8", "replace")


def _common(one: str, other: str) -> int:
    """How long the common beginning is."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


@lru_cache(maxsize=SCOPES_MAX)
def _seed(base_model: str, revision: str, adapter: EngineAdapter, salt: str | None) -> int:
    return PrefixScope(
        base_model=base_model, revision=revision, adapter=adapter, cache_salt=salt
    ).seed


def _model_of(told: PromptSettings) -> _Model:
    try:
        return _compiled(read_prompt_files(told.tokenizer, told.chat_template))
    except (PromptFilesError, BadTemplateError) as error:
        raise SettingsError(f"prompts: {told.base_model}: {error}") from error


def _compiled(files: PromptFiles) -> _Model:
    vocabulary = files.vocabulary

    def template(source: str | None) -> ChatTemplate | Untold:
        if files.own_renderer:
            return Untold.OWN_RENDERER
        return Untold.NO_CHAT_TEMPLATE if source is None else compiled(source)

    return _Model(
        vocabulary=vocabulary,
        refusal=files.refusal,
        # No agent tells facts for a tokenizer that was refused: their scope is another.
        revision=vocabulary.revision if vocabulary is not None else f"refused: {files.refusal}",
        beginning=b"" if vocabulary is None else vocabulary.beginning,
        special_tokens=files.special_tokens,
        chat=template(files.chat),
        chat_with_tools=template(files.chat_with_tools),
    )
