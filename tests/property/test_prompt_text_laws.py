"""A gateway that renders requests never credits more than a naive engine holds of them.

The engine is a reference of its own: plain Jinja over the messages as they are, the tokenizer
library, and a walk over blocks. Templates that drop old reasoning, move the system text or tell the
date are among those tried.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tests.chat_parts import SPECIAL_TOKENS, TEMPLATES
from tests.kv_parts import SCRIPTS, EngineCache, FactReader
from tests.prompt_parts import THEN, texts_in, tokenizer_with_beginning, told_of
from tokenizers import Tokenizer

from axiom_common.drivers.tokenizer_vocabulary import TokenizerVocabulary
from axiom_common.model.prefix import PromptText, linked
from axiom_common.state.block_mirror import BlockMirror
from axiom_gateway.openai_requests import Endpoint
from axiom_gateway.prompt_text import PromptTexts

TAKE_PARTS = ("parts", "developer")
CASES = {
    name: source.replace("generation %}", "set _ = 0 %}") for name, source in TEMPLATES.items()
}
CASES["drops-reasoning"] = CASES["drops-reasoning"].replace("{%- endset _ = 0 %}", "")
NOT_MONOTONE = ("headers", "drops-reasoning", "moves-system", "date", "brackets")
"""A chat that goes on changes what they make of its beginning."""
SALTS = (None, "one", "two")
TOKENIZER = tokenizer_with_beginning()
VOCABULARY = TokenizerVocabulary(TOKENIZER)


class Clock:
    """Of all parties, more or less."""

    now = THEN

    def __call__(self) -> datetime:
        return self.now


CLOCK = Clock()


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> PromptTexts:
    return texts_in(tmp_path_factory.mktemp("models"), now=CLOCK)


def engines_text(template: str, chat: dict[str, Any], apart: timedelta) -> str:
    """What an engine makes of a chat, whose clock is `apart` from the gateway's."""
    now = CLOCK.now + apart
    sandbox = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    sandbox.globals["strftime_now"] = now.strftime
    messages = [
        {**one, "content": [{"type": "text", "text": one["content"]}]}
        if template in TAKE_PARTS
        else one
        for one in chat["messages"]
    ]
    values = {**SPECIAL_TOKENS, "tools": None, "add_generation_prompt": True}
    return sandbox.from_string(CASES[template]).render(**values, messages=messages)


class Clients:
    """Conversations that share beginnings, drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.talks: list[list[dict[str, Any]]] = [[self._said("system", 4), self._said("user", 6)]]

    def _said(self, role: str, most: int) -> dict[str, Any]:
        words = self.random.choices(SCRIPTS, k=self.random.randint(1, most))
        return {"role": role, "content": self.random.choice(("", " ", "\n")).join(words)}

    def next(self) -> dict[str, Any]:
        """A chat: another's, cut and gone on with, or as it was."""
        talk = list(self.random.choice(self.talks))
        match self.random.choice(("again", "go on", "go on", "system", "cut")):
            case "go on":
                thought = (
                    "" if self.random.random() < 0.5 else "<think>" + SCRIPTS[0] + "</think>\n"
                )
                answer = self._said("assistant", 3)
                answer["content"] = thought + answer["content"]
                talk += [answer, self._said("user", 3)]
            case "system":
                talk[0] = self._said("system", 2)
            case "cut":
                talk = talk[: self.random.randint(1, len(talk))]
        self.talks.append(talk)
        return {"messages": talk}


@pytest.mark.parametrize("template", NOT_MONOTONE)
@settings(max_examples=8)
@given(seed=st.integers(0, 2**32))
def test_chats_get_no_more_credit_than_is_held(
    texts: PromptTexts, template: str, seed: int
) -> None:
    clients = Clients(seed)
    rand = clients.random
    CLOCK.now = THEN.replace(hour=23, minute=59, second=rand.randint(40, 59))
    apart = timedelta(seconds=rand.choice((-4, 0, 4)))

    def engine_of(chat: dict[str, Any]) -> str:
        return engines_text(template, chat, apart)

    _play(texts, template, rand, body=clients.next, prompt_of=engine_of, endpoint=Endpoint.CHAT)


@settings(max_examples=15)
@given(seed=st.integers(0, 2**32))
def test_completions_get_no_more_credit_than_is_held(texts: PromptTexts, seed: int) -> None:
    rand = random.Random(seed)
    tokenizer = Tokenizer.from_str(TOKENIZER)
    longs = [" ".join(rand.choices(SCRIPTS, k=8)) for _ in range(2)]

    def body() -> dict[str, Any]:
        text = rand.choice(longs)[: rand.randint(1, 2000)] + rand.choice(SCRIPTS)
        match rand.choice(("text", "text", "plain", "tokens", "strange tokens")):
            case "text":
                return {"prompt": rand.choice((text, [text]))}
            case "plain":
                return {"prompt": text, "add_special_tokens": False}
            case "tokens":
                tokens = tokenizer.encode(text).ids
            case _:
                step = rand.randint(1, 40)
                parts = [text[at : at + step] for at in range(0, len(text), step)]
                tokens = [
                    t for p in parts for t in tokenizer.encode(p, add_special_tokens=False).ids
                ]
        return {"prompt": rand.choice((tokens, [tokens]))}

    def prompt_of(told: dict[str, Any]) -> str | list[int]:
        prompt = told["prompt"]
        prompt = (
            prompt[0] if isinstance(prompt, list) and not isinstance(prompt[0], int) else prompt
        )
        if isinstance(prompt, list):
            return prompt
        return prompt if told.get("add_special_tokens") is False else "<s>" + prompt

    _play(texts, "chatml", rand, body=body, prompt_of=prompt_of, endpoint=Endpoint.COMPLETIONS)


def _play(
    texts: PromptTexts,
    base_model: str,
    rand: random.Random,
    *,
    body: Callable[[], dict[str, Any]],
    prompt_of: Callable[[dict[str, Any]], Any],
    endpoint: Endpoint,
) -> int:
    """Serve and evict; after each step ask for all that was sent. Tokens that were credited."""
    tokenizer = Tokenizer.from_str(TOKENIZER)
    engine = EngineCache(tokenizer, rand.choice((4, 16)))
    revision = texts.revision_of(base_model)
    assert revision == VOCABULARY.revision
    mirror = BlockMirror(base_model, revision, VOCABULARY)
    facts = FactReader()
    sent: list[tuple[dict[str, Any], str | None]] = []
    credited = 0
    for _ in range(rand.randint(2, 8)):
        asked, salt = body(), rand.choice(SALTS)
        prompt = prompt_of(asked)
        sent = [*sent[-4:], (asked, salt)]
        if isinstance(prompt, str):
            facts.apply(mirror.fold(engine.serve(prompt, salt=salt)))
        if rand.random() < 0.3:
            facts.apply(mirror.fold(engine.evict(rand.randrange(500))))
        CLOCK.now += timedelta(seconds=rand.choice((0, 2, 4)))
        for one, salted in sent:
            told = told_of(texts, base_model, one | {"cache_salt": salted}, endpoint)
            if not isinstance(told, PromptText):
                assert isinstance(one.get("prompt"), list)
                continue
            credit = facts.credit(linked(told.seed, told.text))
            assert credit <= engine.depth(prompt_of(one), salt=salted)
            credited += credit
    return credited


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_chat_that_is_held_is_credited(texts: PromptTexts, template: str) -> None:
    """The laws above hold for who credits nothing, too."""
    CLOCK.now = THEN
    chat = {"messages": [{"role": "user", "content": SCRIPTS[0] * 40}]}

    def prompt_of(told: dict[str, Any]) -> str:
        return engines_text(template, told, timedelta())

    rand = random.Random(4)
    credited = _play(
        texts, template, rand, body=lambda: chat, prompt_of=prompt_of, endpoint=Endpoint.CHAT
    )
    assert credited > 300
