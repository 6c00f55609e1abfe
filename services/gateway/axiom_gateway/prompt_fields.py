"""Which members of a request change its prompt, and which requests' prompts can't be told."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from axiom_common.model.prefix import Untold
from axiom_gateway.openai_requests import Endpoint

Members = dict[str, msgspec.Raw]

_BY_WHICH = """
    add_generation_prompt add_special_tokens cache_salt chat_template_kwargs
    continue_final_message documents messages prompt reasoning_effort tool_choice tools
"""
_FOLLOWED = frozenset(_BY_WHICH.split())
"""Members that rendering goes by."""
_OF_VLLM = """
    allowed_token_ids bad_words ec_transfer_params frequency_penalty ignore_eos
    include_reasoning include_stop_str_in_output kv_transfer_params length_penalty logit_bias
    logprob_token_ids logprobs max_completion_tokens max_tokens media_io_kwargs min_p min_tokens
    mm_payload model n parallel_tool_calls presence_penalty priority repetition_detection
    repetition_penalty request_id response_format return_mm_kwargs return_prompt_text
    return_token_ids return_token_offsets seed session_id return_tokens_as_token_ids
    routed_experts_prompt_start skip_special_tokens spaces_between_special_tokens stop
    stop_token_ids stream stream_interval stream_options structured_outputs temperature
    thinking_token_budget top_k top_logprobs top_p truncation_side user vllm_xargs watermarking
"""
_OF_OPENAI = """
    best_of metadata prediction prompt_cache_key prompt_cache_retention safety_identifier
    service_tier store verbosity
"""
_HARMLESS = frozenset((*_OF_VLLM.split(), *_OF_OPENAI.split()))
"""Members that leave a prompt as it is: of vLLM 0.32, and of OpenAI, which it passes over."""
_CACHE_NOT_READ = frozenset(("echo", "prompt_logprobs"))
"""Members that ask for log-probabilities of the prompt, for which engines compute all of it."""
_UNSET = (b"null", b"false")
_TEXTS = frozenset(("messages", "prompt"))
VALUES_BYTES_MAX = 64 << 10
"""Of JSON of tools, documents or template arguments."""
STRINGS_MAX = 32_768
NESTED_MAX = 16_384
NUMBERS_MAX = 32_768
"""Quotes, braces and brackets in a member, and the token ids of a prompt."""
COUNTED_BYTES = 192 << 10
"""What has no more is parsed in a few milliseconds, whatever it is; to count costs as much as that
does for text."""


def untold_by(endpoint: Endpoint, members: Members) -> Untold | None:
    """Why a request's members leave its prompt unknown; None when they don't."""
    if endpoint is Endpoint.EMBEDDINGS:
        return Untold.EMBEDDINGS
    others = [
        name
        for name in members.keys() - _HARMLESS - _FOLLOWED
        if bytes(memoryview(members[name])[:6]) not in _UNSET
    ]
    if not others:
        return None
    return Untold.CACHE_NOT_READ if _CACHE_NOT_READ.intersection(others) else Untold.FIELD


def size_of(members: Members) -> int:
    """Bytes of JSON that rendering may have to read."""
    return sum(len(memoryview(members[name])) for name in members.keys() & _FOLLOWED)


def is_heavy(members: Members) -> bool:
    """Whether rendering could take long: its time goes with the number of values, and with the
    nesting of tools, more than with bytes of text. A quick look at JSON that is not parsed yet."""
    for name in members.keys() & _FOLLOWED:
        size = len(memoryview(members[name]))
        if name not in _TEXTS:
            if size > VALUES_BYTES_MAX:
                return True
        elif size > COUNTED_BYTES and _has_many_values(name, bytes(memoryview(members[name]))):
            return True
    return False


def _has_many_values(name: str, told: bytes) -> bool:
    if told.count(b'"') > STRINGS_MAX or told.count(b"{") + told.count(b"[") > NESTED_MAX:
        return True
    return name == "prompt" and told[:1] == b"[" and told.count(b",") > NUMBERS_MAX


def read(members: Members, name: str, kind: Any) -> Any:
    """One member; None where it is missing or null. Raises msgspec's errors for another kind."""
    raw = members.get(name)
    return None if raw is None else _decoder(kind).decode(raw)


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """For the few kinds that are asked for here."""
    return msgspec.json.Decoder(kind | None)
