"""Records what the real vLLM makes of the chats in `tests/chat_parts.py`.

    .venv-engine/bin/python -m tests.engine.record_chats [FILE]

from the root of the repository writes `tests/recorded/chats.json`, or FILE: for each template and
chat the text, or null where vLLM refuses it; and what it puts before a prompt by each way to ask.
"""

from __future__ import annotations

import copy
import json
import sys
import tempfile
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import transformers.utils.chat_template_utils as hf_templates
from tests.chat_parts import CHATS, NOW, SPECIAL_TOKENS, TEMPLATES
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoTokenizer
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.renderers.chat_utils import parse_chat_messages
from vllm.renderers.hf import resolve_chat_template_content_format, safe_apply_chat_template
from vllm.renderers.params import merge_kwargs

FILE = Path(__file__).parents[1] / "recorded" / "chats.json"


class _Then(datetime):
    @classmethod
    def now(cls, tz: Any = None) -> datetime:
        return datetime.fromisoformat(NOW)


def _tokenizer(folder: Path, *, processor: bool = False, **config: Any) -> Any:
    tokenizer = Tokenizer(models.BPE(vocab={"a": 0}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens([*SPECIAL_TOKENS.values()])
    if processor:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))]
        )
    tokenizer.save(str(folder / "tokenizer.json"))
    told = {"tokenizer_class": "PreTrainedTokenizerFast", **SPECIAL_TOKENS, **config}
    (folder / "tokenizer_config.json").write_text(json.dumps(told))
    return AutoTokenizer.from_pretrained(folder)


def _rendered(tokenizer: Any, body: dict[str, Any]) -> str | None:
    config: Any = SimpleNamespace(
        revision=None,
        code_revision=None,
        tokenizer_revision=None,
        trust_remote_code=False,
        model="m",
        tokenizer="m",
        multimodal_config=None,
        enable_prompt_embeds=False,
        allowed_local_media_path="",
        allowed_media_domains=None,
        hf_config=SimpleNamespace(model_type="m"),
    )
    try:
        request = ChatCompletionRequest.model_validate({"model": "m", **copy.deepcopy(body)})
        tools = None if request.tools is None else [tool.model_dump() for tool in request.tools]
        params = request.build_chat_params(None, "auto").with_defaults(
            merge_kwargs(None, {"tools": tools, "tokenize": False})
        )
        conversation, _, _ = parse_chat_messages(
            request.messages,
            config,
            content_format=resolve_chat_template_content_format(
                chat_template=params.chat_template,
                tools=params.chat_template_kwargs.get("tools"),
                given_format=params.chat_template_content_format,
                tokenizer=tokenizer,
                model_config=config,
            ),
        )
        arguments = params.get_apply_chat_template_kwargs()
        return safe_apply_chat_template(config, tokenizer, conversation, **arguments)
    except Exception as error:  # noqa: BLE001  (whatever makes it answer 400)
        print(type(error).__name__, str(error)[:100].replace("\n", " "))
        return None


def _beginnings(folder: Path) -> dict[str, str]:
    """By what is told: the tokenizer's post-processor counts, flags in its config don't."""
    ways: dict[str, dict[str, Any]] = {
        "nothing": {"add_bos_token": True},
        "processor": {"processor": True, "add_bos_token": False},
    }
    told = {way: _tokenizer(folder, **one) for way, one in ways.items()}
    return {way: one.decode(one("").input_ids) for way, one in told.items()}


def main(file: Path) -> None:
    """Write the file."""
    hf_templates.datetime = _Then
    with tempfile.TemporaryDirectory() as name:
        chats = {
            template: {
                chat: _rendered(_tokenizer(_made(name, n), chat_template=source), body)
                for chat, body in CHATS.items()
            }
            for n, (template, source) in enumerate(TEMPLATES.items())
        }
        told = {"chats": chats, "beginnings": _beginnings(_made(name, -1))}
    file.write_text(json.dumps(told, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def _made(parent: str, number: int) -> Path:
    folder = Path(parent) / str(number)
    folder.mkdir(exist_ok=True)
    return folder


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FILE)
