"""What a gateway that is measured knows of prompts: a tokenizer with its template, and facts.

Every engine's agent tells facts, so that each request is rendered, linked and looked up; no prompt
of the load is among them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path
from random import Random

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from axiom_common.drivers.tokenizer_vocabulary import read_vocabulary
from axiom_common.errors import UnavailableError
from axiom_common.model.engine import NodeState
from axiom_common.model.ids import EngineId
from axiom_common.model.prefix import FactBatch
from axiom_common.ports.bus import Bus
from axiom_common.wire import subjects
from axiom_common.wire.schemas import FactKind, FactReport, encode

STAND_EVERY_S = 2.0
CHUNKS = 10_000
"""Of each engine."""
_TOKENS = 64
"""In a chunk."""
_TEMPLATE = """
{%- for message in messages -%}
{{- '<|start|>' + message.role + '\\n' + message.content + '<|end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|start|>assistant\\n' }}{%- endif -%}
"""


def write_model(folder: Path) -> str:
    """A byte-level tokenizer and a template in the style of ChatML; returns its revision."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: n for n, c in enumerate(alphabet)}, merges=[]))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens(["<|start|>", "<|end|>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(_TEMPLATE)
    return read_vocabulary(folder).revision


async def tell_facts(nodes: Sequence[NodeState], bus: Bus, revision: str) -> None:
    """Tell what each engine holds, whenever a gateway asks, and that nothing changes, until
    cancelled."""
    facts = {engine.engine: _facts(engine.engine) for node in nodes for engine in node.engines}

    async def tell(kind: FactKind) -> None:
        for node in nodes:
            for engine in node.engines:
                report = FactReport(
                    kind=kind,
                    region=node.region,
                    node=node.node,
                    incarnation=node.incarnation,
                    engine=engine.engine,
                    revision=revision,
                    seq=1,
                    hbm=facts[engine.engine] if kind is FactKind.SNAPSHOT else FactBatch(),
                )
                # A bus that is away for a moment is told the next time.
                with contextlib.suppress(UnavailableError):
                    await bus.publish(subjects.node_facts(node.region, node.node), encode(report))

    async def asked(subject: str, payload: bytes) -> None:
        del subject, payload
        await tell(FactKind.SNAPSHOT)

    for node in nodes:
        await bus.subscribe(subjects.node_facts_wanted(node.region, node.node), asked)
    while True:
        await tell(FactKind.STAND)
        await asyncio.sleep(STAND_EVERY_S)


def _facts(engine: EngineId) -> FactBatch:
    random = Random(engine)
    return FactBatch.of(((random.getrandbits(64) | 1, _TOKENS) for _ in range(CHUNKS)), ())
