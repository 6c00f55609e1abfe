"""Settings of the node agent."""

from __future__ import annotations

from pathlib import Path

import pytest

from axiom_common.errors import SettingsError
from axiom_common.model.engine import EngineStatus, LinkModel
from axiom_common.model.ids import NodeId
from axiom_common.runtime.settings import SettingsSource, load_settings
from axiom_node_agent.settings import AgentSettings

GOOD = """
region: eu
nats_url: nats://127.0.0.1:4222
node: n1
port: 0
beat_ms: 250
poll_ms: 250
engines:
  - name: e1
    url: http://127.0.0.1:8000/
    base_model: llama
    hbm_slots: 4
    host_slots: 16
    max_lora_rank: 64
    max_num_seqs: 128
    gpus: [0, 1]
    link: {h2d_fixed_ms: 1, h2d_gbps: 50, store_fixed_ms: 2, store_gbps: 3}
"""


def settings(folder: Path, text: str) -> AgentSettings:
    path = folder / "node.yaml"
    path.write_text(text)
    return load_settings(AgentSettings, config=path)


def test_an_engine_as_declared(tmp_path: Path) -> None:
    [engine] = settings(tmp_path, GOOD).engines
    state = engine.declared(NodeId("n1"))
    assert state.engine == "n1.e1"
    assert state.url == "http://127.0.0.1:8000"
    assert state.status is EngineStatus.STARTING
    assert (state.limits.hbm_slots, state.limits.host_slots) == (4, 16)
    assert state.gpus == (0, 1)
    assert state.link == LinkModel(h2d_fixed_ms=1, h2d_gbps=50, store_fixed_ms=2, store_gbps=3)


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("node: n1", "node: n.1", "node"),
        ("node: n1", "", "node"),
        ("http://127.0.0.1:8000/", "127.0.0.1:8000", "engines.0.url"),
        ("hbm_slots: 4", "hbm_slots: -1", "engines.0.hbm_slots"),
        ("hbm_slots: 4", "hbm_slot: 4", "engines.0.hbm_slot"),
        ("hbm_slots: 4", "extension_socket: run/e1.sock", "engines.0.extension_socket"),
        ("base_model: llama", "tokenizer: /m", "engines.0"),
        ("hbm_slots: 4", "tokenizer: /m\n    kind: sglang", "engines.0"),
        ("hbm_slots: 4", f"extension_socket: /{'x' * 100}", "engines.0.extension_socket"),
        ("h2d_gbps: 50", "h2d_gbps: 0", "engines.0.link.h2d_gbps"),
        ("poll_ms: 250", "poll_ms: 0", "poll_ms"),
        ("beat_ms: 250", "beat_ms: .nan", "beat_ms"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, old: str, new: str, named: str) -> None:
    assert old in GOOD
    with pytest.raises(SettingsError, match=rf"^{named}: "):
        settings(tmp_path, GOOD.replace(old, new))


def test_engines_are_there_and_differ(tmp_path: Path) -> None:
    twice = GOOD + "  - {name: e1, url: 'http://127.0.0.1:8001'}\n"
    with pytest.raises(SettingsError, match="two engines are called 'e1'"):
        settings(tmp_path, twice)
    with pytest.raises(SettingsError, match=r"^engines: "):
        settings(tmp_path, "node: n1\nengines: []\n")


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_the_kind_of_an_engine_is_told(tmp_path: Path, kind: str) -> None:
    text = GOOD.replace("base_model: llama", f"base_model: llama\n    kind: {kind}")
    [engine] = settings(tmp_path, text).engines
    assert engine.declared(NodeId("n1")).kind == kind


def test_a_kind_without_a_driver_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="kind"):
        settings(tmp_path, GOOD.replace("base_model: llama", "base_model: llama\n    kind: tgi"))


def test_two_engines_do_not_tell_at_the_same_socket(tmp_path: Path) -> None:
    engine = "{name: %s, url: 'http://127.0.0.1:1', extension_socket: /run/axiom/e.sock}"
    text = f"node: n1\nengines: [{engine % 'e1'}, {engine % 'e2'}]\n"
    with pytest.raises(SettingsError, match=r"/run/axiom/e\.sock"):
        settings(tmp_path, text)


def test_the_file_is_read_again_when_it_is_another(tmp_path: Path) -> None:
    path = tmp_path / "node.yaml"
    path.write_text(GOOD)
    source = SettingsSource(AgentSettings, config=path, flags={"port": 7})
    assert (source.settings.port, source.changed()) == (7, False)
    path.write_text(GOOD.replace("name: e1", "name: e2"))
    assert source.changed()
    assert source.read().engines[0].name == "e2"
    assert not source.changed()
    path.write_text("nonsense")
    assert source.changed()
    with pytest.raises(SettingsError):
        source.read()
    assert source.settings.engines[0].name == "e2"
    assert not source.changed(), "it is as wrong as it was"
    path.unlink()
    assert source.changed()
