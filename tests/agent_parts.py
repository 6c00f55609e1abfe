"""Parts of a node agent for its tests."""

from __future__ import annotations

from axiom_common.model.adapter import AdapterSpec
from axiom_common.model.engine import EngineLimits, EngineState, EngineStatus
from axiom_common.model.ids import EngineAdapter, EngineId
from axiom_common.ports.engine import EngineModels, EngineResidency, EngineSample
from axiom_common.ports.engine_extension import EngineWord, RankWord
from axiom_node_agent.state import EngineBook

ENGINE = EngineId("n1.e1")
BASE_MODEL = "base"


def spec(
    name: str, *, revision: int = 1, rank: int = 8, base_model: str = BASE_MODEL
) -> AdapterSpec:
    """A declared adapter that lies where its name says."""
    return AdapterSpec(
        name=name,
        base_model=base_model,
        revision=revision,
        path=f"/adapters/{name}",
        rank=rank,
        size_bytes=25_000_000,
    )


def name(text: str, revision: int = 1) -> EngineAdapter:
    """An adapter's name on engines."""
    return EngineAdapter(f"{text}~{revision}")


def names(*texts: str) -> frozenset[EngineAdapter]:
    """Names on engines."""
    return frozenset(name(text) for text in texts)


def paths(*texts: str) -> dict[EngineAdapter, str]:
    """Names on an engine with the paths of their specs."""
    return {name(text): spec(text).path for text in texts}


def declared(*, hbm_slots: int = 2, host_slots: int = 4) -> EngineState:
    """What settings say of an engine."""
    return EngineState(
        engine=ENGINE,
        url="http://127.0.0.1:1",
        base_model=BASE_MODEL,
        served_name="",
        status=EngineStatus.STARTING,
        limits=EngineLimits(hbm_slots=hbm_slots, host_slots=host_slots, max_lora_rank=16),
    )


def sample(*in_use: str, started_s: float | None = 1.0, **figures: float) -> EngineSample:
    """A scrape; `in_use` name the adapters that run."""
    return EngineSample(
        running=len(in_use),
        waiting=0,
        in_use=names(*in_use),
        started_s=started_s,
        **figures,  # type: ignore[arg-type]
    )


def models(*texts: str) -> EngineModels:
    """A list of names."""
    return EngineModels(base=("served",), adapters=paths(*texts))


def word(
    hbm: tuple[str, ...] = (),
    host: tuple[str, ...] = (),
    *,
    registered: tuple[str, ...] | None = None,
    in_flight: dict[str, int] | None = None,
    life: str = "one",
    pinned: tuple[str, ...] = (),
) -> EngineWord:
    """What the extension of an engine with 2 slots and 4 host copies says; oldest first, `host`
    with all that is in `hbm`. Names in brackets are nobody's. All others are registered, or just
    those that are named."""

    def shown(texts: tuple[str, ...]) -> tuple[EngineAdapter, ...]:
        return tuple(EngineAdapter(t) if t.startswith("(") else name(t) for t in texts)

    named = registered
    if named is None:
        named = tuple(t for t in dict.fromkeys((*hbm, *host)) if not t.startswith("("))
    residency = EngineResidency(hbm=shown(hbm), host=shown(host), hbm_slots=2, host_slots=4)
    return EngineWord(
        ranks=(RankWord(rank=0, residency=residency, pinned=names(*pinned)),),
        lives=frozenset({life}),
        in_flight={name(text): count for text, count in (in_flight or {}).items()},
        registered=paths(*named),
    )


class Changes:
    """Counts how often a book says that it changed."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


def ready_book(*registered: str, hbm_slots: int = 2, host_slots: int = 4) -> EngineBook:
    """A book of an engine that answers and lists these names."""
    book = EngineBook(declared(hbm_slots=hbm_slots, host_slots=host_slots), Changes())
    book.saw_sample(sample(), 0.0)
    book.saw_models(models(*registered), 0.0)
    return book
