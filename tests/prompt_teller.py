"""An agent that says that engines hold prompts, over any bus."""

from __future__ import annotations

from pathlib import Path

import msgspec
from tests.kv_parts import trained_byte_level

from axiom_common.model.ids import BASE, EngineId, RegionId, node_of
from axiom_common.model.prefix import FactBatch, PromptText, linked
from axiom_common.ports.bus import Bus
from axiom_common.wire import subjects
from axiom_common.wire.schemas import FactKind, FactReport, encode
from axiom_gateway.openai_requests import Endpoint
from axiom_gateway.prompt_text import PromptTexts
from axiom_gateway.settings import GatewaySettings

TOKENS_OF_FACT = 40
"""Told of each chunk, whatever it has."""


def model_folder(folder: Path) -> Path:
    """A model's folder, with a tokenizer and nothing else."""
    (folder / "tokenizer.json").write_text(trained_byte_level())
    return folder


class PromptTeller:
    """Tells of engines with this base model. Each change says all that an engine holds."""

    def __init__(self, bus: Bus, region: RegionId, base_model: str, model: Path) -> None:
        told = GatewaySettings(prompts=({"base_model": base_model, "tokenizer": model},))
        self._texts = PromptTexts(told.prompts)
        self._bus = bus
        self._region = region
        self._base_model = base_model
        self._seqs: dict[EngineId, int] = {}

    async def tell(self, engine: EngineId, *prompts: str) -> None:
        """It holds these prompts, and nothing else."""
        news = [
            (link, TOKENS_OF_FACT * number)
            for prompt in prompts
            for number, link in enumerate(self.links(prompt), 1)
        ]
        seq = self._seqs[engine] = self._seqs.get(engine, 0) + 1
        revision = self._texts.revision_of(self._base_model)
        assert revision is not None
        report = FactReport(
            kind=FactKind.CHANGES,
            region=self._region,
            node=node_of(engine),
            incarnation=1,
            engine=engine,
            revision=revision,
            seq=seq,
            cleared=True,
            hbm=FactBatch.of(news, ()),
        )
        subject = subjects.node_facts(self._region, node_of(engine))
        await self._bus.publish(subject, encode(report))

    def links(self, prompt: str) -> list[int]:
        members = {"prompt": msgspec.Raw(msgspec.json.encode(prompt))}
        text = self._texts.text_of(Endpoint.COMPLETIONS, self._base_model, BASE, members)
        assert isinstance(text, PromptText)
        return list(linked(text.seed, text.text))


def words(topic: str, count: int = 400) -> str:
    """A prompt of some kilobytes that begins like no other."""
    return " ".join(f"{topic} number {n}." for n in range(count))
