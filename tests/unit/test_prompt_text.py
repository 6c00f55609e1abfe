"""Which requests have a text, which it is, of which scope; and what a model's folder may hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.chat_parts import TEMPLATES
from tests.kv_parts import trained_byte_level
from tests.prompt_parts import model_folder, text_of, texts_in, tokenizer_with_beginning, told_of
from tokenizers import Tokenizer, models

from axiom_common.errors import SettingsError
from axiom_common.model.ids import BASE, EngineAdapter
from axiom_common.model.prefix import FINE_CHUNK_BYTES, PrefixScope, PromptText, Untold
from axiom_common.model.vocabulary import VocabularyRefusal
from axiom_common.runtime.settings import load_settings
from axiom_gateway.openai_requests import Endpoint, parse
from axiom_gateway.prompt_text import TOKENIZER_REFUSED, TOKENS_MAX, PromptTexts
from axiom_gateway.settings import GatewaySettings, PromptSettings

RECORDED = json.loads((Path(__file__).parent.parent / "recorded" / "chats.json").read_text())
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}]}
TEXT = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> PromptTexts:
    return texts_in(tmp_path_factory.mktemp("models"), {"m": TEMPLATES["chatml"]})


def completion(texts: PromptTexts, **body: Any) -> PromptText | Untold:
    return told_of(texts, "m", body, Endpoint.COMPLETIONS)


def test_a_prompt_begins_with_what_the_engine_puts_before_it(texts: PromptTexts) -> None:
    assert RECORDED["beginnings"] == {"nothing": "", "processor": "<s>"}
    for body, text in (
        ({"prompt": "hi"}, "<s>hi"),
        ({"prompt": ["hi"]}, "<s>hi"),
        ({"prompt": "<s>hi"}, "<s><s>hi"),
        ({"prompt": "hi", "add_special_tokens": True}, "<s>hi"),
        ({"prompt": "hi", "add_special_tokens": False}, "hi"),
        ({"prompt": "e\u0301"}, "<s>\u00e9"),
        ({"prompt": ""}, "<s>"),
    ):
        assert text_of(texts, "m", body, Endpoint.COMPLETIONS) == text
    assert text_of(texts, "m", CHAT) == TEXT
    assert text_of(texts, "m", CHAT | {"add_special_tokens": True}) == "<s>" + TEXT


def test_a_prompt_that_fills_no_chunk_is_known_by_its_size(texts: PromptTexts) -> None:
    def short(endpoint: Endpoint, **body: Any) -> bool:
        members = parse(endpoint, json.dumps({"model": "m", **body}).encode()).members
        is_short = texts.is_short(endpoint, "m", members)
        told = texts.text_of(endpoint, "m", BASE, members)
        assert isinstance(told, PromptText)
        assert not is_short or len(told.text) < FINE_CHUNK_BYTES
        return is_short

    def chat(size: int) -> list[dict[str, str]]:
        return [{"role": "user", "content": "x" * size}]

    assert short(Endpoint.CHAT, messages=chat(1))
    for size in range(100, 300):
        short(Endpoint.CHAT, messages=chat(size))
        short(Endpoint.COMPLETIONS, prompt="x" * size)
    assert not short(Endpoint.CHAT, messages=chat(FINE_CHUNK_BYTES - len(TEXT) + 2))
    tools = [{"type": "function", "function": {"name": "f" * 200, "parameters": {}}}]
    assert not short(Endpoint.CHAT, messages=chat(1), tools=tools)
    assert short(Endpoint.COMPLETIONS, prompt="hi")
    assert not short(Endpoint.COMPLETIONS, prompt=[1, 2])


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"prompt": ["a", "b"]}, Untold.SEVERAL_PROMPTS),
        ({"prompt": [[1], [2]]}, Untold.SEVERAL_PROMPTS),
        ({"prompt": "a", "suffix": "b"}, Untold.FIELD),
        ({"prompt": "a", "prompt_embeds": "xyz"}, Untold.FIELD),
        ({"prompt": "a", "truncate_prompt_tokens": 5}, Untold.FIELD),
        ({"prompt": "a", "use_beam_search": True}, Untold.FIELD),
        ({"prompt": "a", "of_another_engine": 1}, Untold.FIELD),
        ({"prompt": "a", "prompt_logprobs": 0}, Untold.CACHE_NOT_READ),
        ({"prompt": "a", "echo": True, "logprobs": 1}, Untold.CACHE_NOT_READ),
        ({"prompt": "a", "add_special_tokens": "yes"}, Untold.MALFORMED),
        ({"prompt": "a", "cache_salt": ""}, Untold.MALFORMED),
        ({"prompt": "a", "cache_salt": 5}, Untold.MALFORMED),
        ({"prompt": "a", "cache_salt": "x" * 129}, Untold.MALFORMED),
        ({"prompt": [-1, 2]}, Untold.MALFORMED),
        ({"prompt": [1, "x"]}, Untold.MALFORMED),
        ({"prompt": [[]]}, Untold.MALFORMED),
        ({"prompt": [10**9]}, Untold.TOKENS),
    ],
)
def test_prompts_without_a_text_have_a_reason(
    texts: PromptTexts, body: dict[str, Any], reason: Untold
) -> None:
    assert completion(texts, **body) is reason


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"chat_template": "x"}, Untold.FIELD),
        ({"chat_template_kwargs": {"chat_template": "x"}}, Untold.FIELD),
        ({"chat_template_kwargs": {"tokenize": True}}, Untold.FIELD),
        ({"chat_template_kwargs": {"tools": []}}, Untold.FIELD),
        ({"chat_template_kwargs": 5}, Untold.MALFORMED),
        ({"mm_processor_kwargs": {"a": 1}}, Untold.FIELD),
        ({"audio": {"voice": "x"}}, Untold.FIELD),
        ({"tools": [{"function": {"name": "f"}}], "tool_choice": "none"}, Untold.FIELD),
        ({"tools": [{"function": {"name": 5}}]}, Untold.MALFORMED),
        ({"tools": [{"type": "web", "function": {"name": "f"}}]}, Untold.MALFORMED),
        ({"documents": ["x"]}, Untold.MALFORMED),
        ({"echo": True}, Untold.CACHE_NOT_READ),
        ({"messages": [{"role": "user", "content": [{"type": "file"}]}]}, Untold.FIELD),
    ],
)
def test_chats_without_a_text_have_a_reason(
    texts: PromptTexts, fields: dict[str, Any], reason: Untold
) -> None:
    assert told_of(texts, "m", CHAT | fields) is reason


def test_fields_that_are_unset_or_change_nothing_leave_the_text(texts: PromptTexts) -> None:
    harmless = {
        "chat_template": None, "truncate_prompt_tokens": None, "echo": False, "suffix": None,
        "use_beam_search": False, "temperature": 0, "max_tokens": 5, "stream": True, "seed": 1,
        "metadata": {"a": "b"}, "logprobs": True, "top_logprobs": 2, "tool_choice": "auto",
        "cache_salt": None, "chat_template_kwargs": None, "tools": None, "documents": None,
    }  # fmt: skip
    assert text_of(texts, "m", CHAT | harmless) == TEXT


def test_embeddings_and_other_base_models_have_no_text(texts: PromptTexts) -> None:
    assert told_of(texts, "m", {"input": "x"}, Endpoint.EMBEDDINGS) is Untold.EMBEDDINGS
    assert told_of(texts, "other", CHAT) is Untold.NO_TOKENIZER


def test_tokens_have_the_text_that_the_tokenizer_would_cut_so(texts: PromptTexts) -> None:
    tokenizer = Tokenizer.from_str(tokenizer_with_beginning())
    text = "The contract says that payment is due, you're told. " * 20
    tokens = tokenizer.encode(text).ids
    told = completion(texts, prompt=tokens)
    assert isinstance(told, PromptText)
    assert told.text.decode() == "<s>" + text
    split = [t for c in text[10:] for t in tokenizer.encode(c, add_special_tokens=False).ids]
    first = tokenizer.encode(text[:10]).ids
    other = completion(texts, prompt=first + split)
    assert isinstance(other, PromptText)
    assert len(other.text) < 20
    many = completion(texts, prompt=tokens * 40)
    assert isinstance(many, PromptText)
    assert len(many.text) < 5 * TOKENS_MAX
    assert (told.is_cut, other.is_cut, many.is_cut) == (False, True, True)


def test_a_chat_with_an_image_is_cut_there_and_says_so(texts: PromptTexts) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    content = [{"type": "text", "text": "before"}, image, {"type": "text", "text": "after"}]
    whole, cut = (
        told_of(texts, "m", {"messages": [{"role": "user", "content": parts}]})
        for parts in (content[:1], content)
    )
    assert isinstance(whole, PromptText)
    assert isinstance(cut, PromptText)
    assert (whole.is_cut, cut.is_cut) == (False, True)
    assert b"after" not in cut.text


def test_the_seed_is_of_the_scope(texts: PromptTexts) -> None:
    revision = texts.revision_of("m")
    assert revision is not None
    assert len(revision) == 16
    members = parse(Endpoint.CHAT, json.dumps({"model": "m", **CHAT}).encode()).members
    salted = (
        members | parse(Endpoint.CHAT, b'{"model":"m","messages":[{}],"cache_salt":"s"}').members
    )
    salted["messages"] = members["messages"]

    def seed(of: Any, adapter: str = BASE, tenant_salt: str | None = None) -> int:
        told = texts.text_of(Endpoint.CHAT, "m", EngineAdapter(adapter), of, tenant_salt)
        assert isinstance(told, PromptText)
        assert told.text.decode() == TEXT
        return told.seed

    def scope(adapter: str = BASE, salt: str | None = None) -> int:
        return PrefixScope(
            base_model="m", revision=revision, adapter=EngineAdapter(adapter), cache_salt=salt
        ).seed

    assert seed(members) == scope()
    assert seed(members, "ad0") == scope("ad0")
    assert seed(salted) == scope(salt="s")
    assert seed(members, tenant_salt="t") == seed(salted, tenant_salt="t") == scope(salt="t")


def _texts(folder: Path, template: Path | None = None) -> PromptTexts:
    return PromptTexts([PromptSettings(base_model="m", tokenizer=folder, chat_template=template)])


def test_a_refused_tokenizer_leaves_raw_text_and_says_so(tmp_path: Path) -> None:
    words = Tokenizer(models.WordLevel({"a": 0}, unk_token="a")).to_str()
    texts = _texts(model_folder(tmp_path, words, TEMPLATES["chatml"]))
    assert texts.refusals == {"m": VocabularyRefusal.MODEL_KIND}
    assert texts.degraded() == (TOKENIZER_REFUSED,)
    assert texts.revision_of("m") is None
    assert text_of(texts, "m", CHAT) == TEXT
    assert completion(texts, prompt=[1, 2]) is Untold.TOKENS
    assert text_of(texts, "m", {"prompt": "hi"}, Endpoint.COMPLETIONS) == "hi"


def test_templates_are_found_where_transformers_looks(tmp_path: Path) -> None:
    tools = {"tools": [{"function": {"name": "f"}}]}

    def both(folder: Path, template: Path | None = None) -> tuple[str, str]:
        texts = _texts(folder, template)
        return text_of(texts, "m", CHAT), text_of(texts, "m", CHAT | tools)

    named = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]
    folder = model_folder(tmp_path / "m", trained_byte_level(), named)
    assert both(folder) == ("plain", "tools")
    assert both(folder / "tokenizer.json") == ("plain", "tools")
    (folder / "chat_template.json").write_text('{"chat_template": "processor\'s"}')
    assert both(folder) == ("processor's", "tools")
    (folder / "chat_template.jinja").write_text("file{{ eos_token }}")
    assert both(folder) == ("file</s>", "file</s>")
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "tool_use.jinja").write_text("file for tools")
    assert both(folder) == ("file</s>", "file for tools")
    (tmp_path / "own.jinja").write_text("own")
    assert both(folder, tmp_path / "own.jinja") == ("own", "own")


def test_special_tokens_are_named_as_the_folder_says(tmp_path: Path) -> None:
    template = "{{ bos_token }}|{{ eos_token }}|{{ pad_token }}"
    told = {"bos_token": {"content": "<b>", "lstrip": False}, "eos_token": None}
    folder = model_folder(tmp_path, trained_byte_level(), template, **told)
    assert text_of(_texts(folder), "m", CHAT) == "<b>||"
    (folder / "special_tokens_map.json").write_text('{"pad_token": "<p>"}')
    assert text_of(_texts(folder), "m", CHAT) == "<b>||<p>"


@pytest.mark.parametrize("kind", ["GptOssForCausalLM", "DeepseekV41ForCausalLM", "mistral"])
def test_chats_of_models_that_engines_have_code_for_have_no_text(tmp_path: Path, kind: str) -> None:
    folder = model_folder(tmp_path, trained_byte_level(), "x")
    (folder / "config.json").write_text(json.dumps({"architectures": [kind]}))
    if kind == "mistral":
        (folder / "tekken.json").write_text("{}")
    texts = _texts(folder)
    assert told_of(texts, "m", CHAT) is Untold.OWN_RENDERER
    assert text_of(texts, "m", {"prompt": "hi"}, Endpoint.COMPLETIONS) == "hi"


def test_a_folder_without_a_template_has_texts_of_prompts_only(tmp_path: Path) -> None:
    texts = _texts(model_folder(tmp_path, trained_byte_level()))
    assert told_of(texts, "m", CHAT) is Untold.NO_CHAT_TEMPLATE
    assert text_of(texts, "m", {"prompt": "hi"}, Endpoint.COMPLETIONS) == "hi"


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("tokenizer.json", None),
        ("tokenizer.json", "{"),
        ("tokenizer_config.json", "["),
        ("tokenizer_config.json", "[]"),
        ("tokenizer_config.json", '{"chat_template": [{"name": 1}]}'),
        ("chat_template.jinja", "{% for %}"),
    ],
)
def test_files_that_can_not_be_used_are_one_clear_error(
    tmp_path: Path, file: str, content: str | None
) -> None:
    folder = model_folder(tmp_path, trained_byte_level(), "x")
    if content is None:
        (folder / file).unlink()
    else:
        (folder / file).write_text(content)
    with pytest.raises(SettingsError, match=r"^prompts: m: .") as told:
        _texts(folder)
    assert "\n" not in str(told.value)
    with pytest.raises(SettingsError, match="none"):
        _texts(model_folder(tmp_path / "2", trained_byte_level()), tmp_path / "none.jinja")


def test_settings_name_each_base_model_once() -> None:
    one = {"base_model": "m", "tokenizer": "/models/m"}
    read = load_settings(GatewaySettings, prompts=[one])
    assert read.prompts == (PromptSettings(base_model="m", tokenizer=Path("/models/m")),)
    for wrong in ([one, one], [{"base_model": "m"}], [one | {"more": 1}]):
        with pytest.raises(SettingsError, match="prompts"):
            load_settings(GatewaySettings, prompts=wrong)
