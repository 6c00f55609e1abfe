"""Chat templates in the styles that people serve, and chats for them.

No part of Axiom is used here, so that an engine's own Python can read it too.
"""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
NOW = "2026-05-06 07:08:09"
"""When the recorded chats were rendered."""

TEMPLATES = {
    "chatml": """
{%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}
""",
    "headers": """
{{- bos_token }}
{%- set ns = namespace(rest=messages) %}
{%- if messages[0].role == 'system' %}
    {%- set lead = messages[0]['content'] | trim %}
    {%- set ns.rest = messages[1:] %}
{%- else %}
    {%- set lead = 'Be kind.' %}
{%- endif %}
{{- '[[system]]\\n' }}{% if tools is not none %}{{ 'You have tools.\\n' }}{% endif %}{{ lead }}
{%- for message in ns.rest %}
    {%- if message.tool_calls is defined %}
        {%- for call in message.tool_calls %}
            {{- '[[call ' ~ loop.index ~ ']]' }}{{ call.function.name }}
            {{- call.function.arguments | tojson }}
        {%- endfor %}
    {%- elif message.role == 'tool' %}
        {{- '[[tool ' ~ message.tool_call_id ~ ']]' + (message.content | string) }}
    {%- else %}
        {{- '[[' + message.role + ']]\\n' + message.content | trim + eos_token }}
    {%- endif %}
{%- endfor %}
{% if tools is not none %}{{ tools | tojson(indent=2) }}{% endif %}
{%- if add_generation_prompt %}{{- '[[assistant]]\\n' }}{% endif %}
""",
    "drops-reasoning": """
{%- set ns = namespace(last=-1) %}
{%- for message in messages %}
    {%- if message.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}
{%- endfor %}
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' }}
    {%- if message.role == 'assistant' %}
        {%- generation %}
        {%- set said = message.content %}
        {%- if '</think>' in said %}
            {%- set thought = said.split('</think>')[0].split('<think>')[-1].strip() %}
            {%- set said = said.split('</think>')[-1].lstrip() %}
        {%- else %}
            {%- set thought = message.reasoning_content | default('', true) %}
        {%- endif %}
        {%- if thought and loop.index0 > ns.last %}
            {{- '<think>' + thought + '</think>\\n' }}
        {%- endif %}
        {{- said }}
        {%- endgeneration %}
    {%- else %}
        {{- message.content }}
    {%- endif %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and not enable_thinking %}{{ '<think></think>' }}{% endif %}
{%- endif %}
""",
    "moves-system": """
{%- for message in messages if message.role != 'system' %}
    {%- if loop.last %}
        {%- for lead in messages if lead.role == 'system' %}
            {{- '{' + lead.content + '}' }}
        {%- endfor %}
    {%- endif %}
    {{- message.role[:1] | upper + ': ' + message.content + '\\n' }}
{%- endfor %}
""",
    "date": """
{{- 'Today is ' + strftime_now('%d %b %Y') + '.\\n' }}
{%- for message in messages %}
    {%- if message.role not in ['system', 'user', 'assistant'] %}
        {{- raise_exception('no such role: ' + message.role) }}
    {%- endif %}
    {{- message.role + ': ' + message.content + '\\n' }}
{%- endfor %}
""",
    "brackets": """
{%- set lead, rest = '', messages %}
{%- if messages[0].role == 'system' %}
    {%- set lead, rest = messages[0].content, messages[1:] %}
{%- endif %}
{{- bos_token }}
{%- for message in rest %}
    {%- if message.role == 'user' %}
        {%- if tools is not none and loop.last %}
            {{- '[TOOLS] [' }}
            {%- for tool in tools %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, value in tool.function.items() if key != 'return' %}
                    {{- '"' + key + '": ' + value | tojson }}
                    {%- if not loop.last %}{{ ', ' }}{% endif %}
                {%- endfor %}
                {{- '}}' }}{% if not loop.last %}{{ ', ' }}{% endif %}
            {%- endfor %}
            {{- '] [/TOOLS]' }}
        {%- endif %}
        {{- '[INST] ' + (lead + '\\n\\n' if loop.last and lead else '') }}
        {{- message.content + ' [/INST]' }}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- '[CALLS] ' + message.tool_calls | tojson + eos_token }}
    {%- elif message.role == 'tool' %}
        {%- if not message.tool_call_id %}{% continue %}{% endif %}
        {{- '[RESULT] ' + {'id': message.tool_call_id, 'content': message.content} | tojson }}
    {%- else %}
        {{- ' ' + message.content | trim + eos_token }}
    {%- endif %}
{%- endfor %}
""",
    "parts": """
{%- macro shown(content) -%}
    {%- if content is string -%}
        {{ content }}
    {%- else -%}
        {%- for part in content -%}
            {%- if part.type == 'image' -%}{{ '<|image|>' }}{%- else -%}
            {{ part.text }}{% if part.cache_control is defined %}{{ '*' }}{% endif %}
            {%- endif -%}
        {%- endfor -%}
    {%- endif -%}
{%- endmacro -%}
{%- for message in messages -%}
{{ '<|' + message.role + '|>' + shown(message.content) + '<|end|>' }}
{%- if message.tools %}{{ message.tools | tojson }}{% endif -%}
{%- endfor -%}
{%- for document in documents or [] -%}{{ '<' + document.title + '>' }}{%- endfor -%}
{{- colour | default('plain') }}
""",
    "developer": """
{%- for message in messages %}
    {%- if message.role == 'developer' %}{{ '# ' }}{% endif %}
    {%- for part in message['content'] | list %}{{ part.text | trim }}{% endfor %}{{ ';' }}
{%- endfor %}
{%- if reasoning_effort is defined %}{{ reasoning_effort }}{% endif %}
""",
}

_TOOL = {
    "function": {
        "parameters": {"type": "object", "properties": {"où": {"type": "string"}}},
        "name": "météo",
        "strict": True,
        "vendor": 1,
    },
    "type": "function",
}
_CALL = {
    "type": "function",
    "function": {"name": "météo", "arguments": '{"où": "Köln & <Bonn>", "n": 1.50}'},
    "id": "call_1",
    "index": 0,
}


def _said(role: str, content: Any = "Grüße, 你好.", **others: Any) -> Json:
    return {"role": role, "content": content, **others}


def _text(text: str, **others: Any) -> Json:
    return {"type": "text", "text": text, **others}


_USER = _said("user", "  What's new?\n")
_LONG = [_said("system", "Be brief."), _USER, _said("assistant", "Not much. "), _said("user")]
_THOUGHT = [_USER, _said("assistant", "<think>hm</think>\nA."), _said("user", "B?")]
_PARTS = [_said("user", [_text("one"), _text("two", cache_control={"type": "x"}), "three"])]
_CALLED = [
    _USER,
    _said("assistant", None, tool_calls=[_CALL]),
    _said("tool", [_text("12°"), _text("wet")], tool_call_id="call_1"),
    _said("assistant", "Rain."),
    _said("user"),
]

CHATS: dict[str, Json] = {
    "one": {"messages": [_USER]},
    "long": {"messages": _LONG},
    "thought": {"messages": _THOUGHT},
    "thought-last": {
        "messages": [_USER, _said("assistant", "A.", reasoning_content="deep")],
        "add_generation_prompt": False,
    },
    "reasoning": {"messages": [_USER, _said("assistant", "A.", reasoning="deep"), _USER]},
    "parts": {"messages": _PARTS},
    "parts-refused": {"messages": [_said("assistant", [{"type": "refusal", "refusal": "no"}])]},
    "parts-thinking": {
        "messages": [_said("assistant", [{"type": "thinking", "thinking": "t"}, _text("x")])]
    },
    "parts-empty": {"messages": [_said("user", ["", _text("x"), _text("")])]},
    "none": {"messages": [_said("assistant", None), _said("user", [])]},
    "no-content": {"messages": [{"role": "user"}]},
    "name": {"messages": [_said("user", "x", name="bob", task="t", foo=1)]},
    "custom-role": {"messages": [_said("critic", "x")]},
    "billing": {
        "messages": [_said("system", "x-anthropic-billing-header: cch=1\nrest"), _USER],
    },
    "billing-alone": {
        "messages": [_said("system", [_text("x-anthropic-billing-header: 1"), _text("r")]), _USER],
    },
    "billing-thought": {
        "messages": [
            _said("system", [{"type": "thinking", "thinking": "x-anthropic-billing-header\nq"}]),
            _USER,
        ],
    },
    "tools": {"messages": _LONG, "tools": [_TOOL, {"function": {"name": "bare"}}]},
    "tools-deferred": {
        "messages": [_USER],
        "tools": [{"type": "function", "function": {"name": "f"}, "defer_loading": True}],
    },
    "tool-calls": {"messages": _CALLED, "tools": [_TOOL]},
    "tool-calls-empty": {"messages": [_USER, _said("assistant", "x", tool_calls=[]), _USER]},
    "tool-calls-odd": {
        "messages": [
            _USER,
            *(
                _said(
                    "assistant",
                    "",
                    tool_calls=[{**_CALL, "function": {"name": "f", "arguments": told}}],
                )
                for told in ("", "[]", "{bad", '{"a": NaN, "b": 1e3, "c": "\\ud83d\\ude00"}')
            ),
            _USER,
        ]
    },
    "documents": {"messages": [_USER], "documents": [{"title": "t", "text": "x"}]},
    "arguments": {
        "messages": [_USER],
        "chat_template_kwargs": {"colour": "red", "enable_thinking": False, "unread": 1},
    },
    "arguments-over-tokens": {"messages": [_USER], "chat_template_kwargs": {"bos_token": "B"}},
    "arguments-unset": {
        "messages": [_USER],
        "chat_template_kwargs": {"colour": None, "bos_token": "auto", "enable_thinking": None},
    },
    "arguments-documents": {
        "messages": [_USER],
        "chat_template_kwargs": {"documents": [{"title": "k"}], "add_generation_prompt": False},
    },
    "effort": {"messages": [_USER], "reasoning_effort": "high"},
    "effort-none": {"messages": [_USER], "reasoning_effort": "none"},
    "effort-against": {
        "messages": [_USER],
        "reasoning_effort": "none",
        "chat_template_kwargs": {"enable_thinking": True, "reasoning_effort": "low"},
    },
    "no-generation-prompt": {"messages": _LONG, "add_generation_prompt": False},
    "continue": {
        "messages": [_USER, _said("assistant", "I think ")],
        "add_generation_prompt": False,
        "continue_final_message": True,
    },
    "continue-parts": {
        "messages": [_USER, _said("assistant", [_text("I"), _text("think")])],
        "add_generation_prompt": False,
        "continue_final_message": True,
    },
    "continue-both": {"messages": [_USER], "continue_final_message": True},
    "developer": {
        "messages": [
            _said("system", "S"),
            _said("developer", "D", tools=[_TOOL]),
            _USER,
            _said("developer", [_text("E")]),
        ]
    },
    "developer-first": {"messages": [_said("developer", "D"), _USER]},
    "special-text": {"messages": [_said("user", "<s>{{ x }}</s> <|im_end|>\ttab \u2028 \x00")]},
    "bad-call": {"messages": [_said("assistant", "", tool_calls=[{"id": "x"}])]},
    "bad-content": {"messages": [_said("user", 5)]},
    "bad-part": {"messages": [_said("user", [{"type": "zz"}])]},
    "bad-tools": {"messages": [_USER], "tools": []},
}
