"""Settings: file, environment and flags in their order; wrong ones are one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from axiom_common.errors import SettingsError
from axiom_common.runtime.settings import ServiceSettings, load_settings


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "settings.yaml"
    path.write_text(text)
    return path


def test_defaults_stand_alone() -> None:
    assert load_settings(ServiceSettings).region == "local"


def test_later_sources_win(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = write(tmp_path, "region: from-file\nhost: 127.0.0.2\nlog_level: debug\n")
    monkeypatch.setenv("AXIOM_REGION", "from-environment")
    monkeypatch.setenv("AXIOM_HOST", "127.0.0.3")
    settings = load_settings(ServiceSettings, config=config, host="127.0.0.4", region=None)
    assert (settings.region, settings.host, settings.log_level) == (
        "from-environment",
        "127.0.0.4",
        "debug",
    )


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("regoin: x\n", "regoin"),
        ("region: 'a.b'\n", "region"),
        ("log_level: loud\n", "log_level"),
        ("- a\n", "expected a mapping"),
        ("a: [\n", "settings.yaml"),
        ("region: {a: 1}\nhost: 5\n", "and 1 more"),
    ],
)
def test_wrong_settings_are_one_clear_line(tmp_path: Path, text: str, part: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(ServiceSettings, config=write(tmp_path, text))
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"absent\.yaml"):
        load_settings(ServiceSettings, config=tmp_path / "absent.yaml")


def test_settings_are_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        load_settings(ServiceSettings).region = "other"  # type: ignore[misc]
