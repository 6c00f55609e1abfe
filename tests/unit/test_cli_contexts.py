"""Contexts: which gateway is asked with which key, and the file that keeps them."""

from __future__ import annotations

import fcntl
import json
import os
import threading
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from axiom_cli.__main__ import app
from axiom_cli.contexts import (
    CONTEXTS_MAX,
    DEFAULT_URL,
    FILE_BYTES_MAX,
    Choice,
    Context,
    Contexts,
    ContextsFile,
    Named,
    chosen,
    gateway_url,
)
from axiom_cli.local_context import free_name, register, withdraw, without_dead
from axiom_common.errors import NotFoundError, SettingsError, UnavailableError

PROD, TEST = "https://prod", "http://test:8080"
PROD_KEY, TEST_KEY, OTHER_KEY = Path("/keys/prod"), Path("/keys/test"), Path("/keys/other")
KNOWN = Contexts(
    in_use="prod",
    contexts={
        "prod": Context(url=PROD, key_file=PROD_KEY),
        "test": Context(url=TEST, key_file=TEST_KEY),
        "open": Context(url="http://open"),
    },
)
NOTHING = Named()
IN_PROD = Choice(url=PROD, key_file=PROD_KEY, context="prod")
IN_TEST = Choice(url=TEST, key_file=TEST_KEY, context="test")


@pytest.mark.parametrize(
    ("options", "environment", "known", "expected"),
    [
        (NOTHING, NOTHING, Contexts(), Choice(url=DEFAULT_URL, key_file=None)),
        (NOTHING, NOTHING, KNOWN, IN_PROD),
        (Named(context="test"), NOTHING, KNOWN, IN_TEST),
        (NOTHING, Named(context="test"), KNOWN, IN_TEST),
        (Named(context="test"), Named(context="prod"), KNOWN, IN_TEST),
        (Named(context="test"), Named(url="http://x"), KNOWN, IN_TEST),
        # An option's context brings its key; the environment's key is for what has none.
        (Named(context="test"), Named(key_file=OTHER_KEY), KNOWN, IN_TEST),
        (
            Named(context="open"),
            Named(key_file=OTHER_KEY),
            KNOWN,
            Choice(url="http://open", key_file=OTHER_KEY, context="open"),
        ),
        (
            NOTHING,
            Named(key_file=OTHER_KEY),
            KNOWN,
            Choice(url=PROD, key_file=OTHER_KEY, context="prod"),
        ),
        (
            Named(key_file=OTHER_KEY),
            Named(context="test"),
            KNOWN,
            Choice(url=TEST, key_file=OTHER_KEY, context="test"),
        ),
        # A URL that is no context's gets no context's key.
        (Named(url="http://x/"), NOTHING, KNOWN, Choice(url="http://x", key_file=None)),
        (NOTHING, Named(url="http://x"), KNOWN, Choice(url="http://x", key_file=None)),
        (
            Named(url="http://x"),
            Named(context="test"),
            KNOWN,
            Choice(url="http://x", key_file=None),
        ),
        (
            Named(url="http://x"),
            Named(key_file=OTHER_KEY),
            KNOWN,
            Choice(url="http://x", key_file=OTHER_KEY),
        ),
        # One that is a context's gets that one's.
        (Named(url=TEST + "/"), NOTHING, KNOWN, Choice(url=TEST, key_file=TEST_KEY)),
        (
            Named(url=TEST),
            NOTHING,
            KNOWN.having("test-2", Context(url=TEST, key_file=OTHER_KEY)),
            Choice(url=TEST, key_file=None),
        ),
    ],
)
def test_the_choice(options: Named, environment: Named, known: Contexts, expected: Choice) -> None:
    assert chosen(options, environment, known) == expected


@pytest.mark.parametrize(
    ("options", "environment", "error", "word"),
    [
        (Named(context="test", url=TEST), NOTHING, SettingsError, "one of them"),
        (NOTHING, Named(context="test", url=TEST), SettingsError, "one of them"),
        (Named(context="gone"), NOTHING, SettingsError, "prod, test"),
        (Named(url="prod"), NOTHING, SettingsError, "no URL"),
    ],
)
def test_what_can_not_be_chosen(
    options: Named, environment: Named, error: type[Exception], word: str
) -> None:
    with pytest.raises(error, match=word):
        chosen(options, environment, KNOWN)


LEVELS = st.builds(
    Named,
    context=st.sampled_from([None, "prod", "test", "open"]),
    url=st.sampled_from([None, PROD, TEST, "http://x", "http://prod"]),
    key_file=st.sampled_from([None, OTHER_KEY]),
)


@given(options=LEVELS, environment=LEVELS, in_use=st.sampled_from([None, "prod", "test", "open"]))
def test_the_key_of_a_context_goes_to_its_url_alone(
    options: Named, environment: Named, in_use: str | None
) -> None:
    known = Contexts(in_use=in_use, contexts=KNOWN.contexts)
    try:
        choice = chosen(options, environment, known)
    except SettingsError:
        return
    homes = {PROD_KEY: PROD, TEST_KEY: TEST}
    assert choice.key_file is None or homes.get(choice.key_file, choice.url) == choice.url


@pytest.mark.parametrize(
    "text",
    ["", "prod", "prod:80", "ftp://a", "http://", "http://u:p@a", "http://a?b", "http://a#b",
     "http://a:x", "http://a:99999", "http://a\n"],
)  # fmt: skip
def test_what_is_no_gateways_url(text: str) -> None:
    with pytest.raises(ValueError, match=r"URL|port|Port"):
        gateway_url(text)


def test_the_file_is_its_users_alone_and_changed_whole(tmp_path: Path) -> None:
    file = ContextsFile(tmp_path / "new" / "contexts.yaml")
    assert file.read() == Contexts()
    file.change(lambda _: KNOWN)
    assert file.read() == KNOWN
    assert file.path.stat().st_mode & 0o777 == 0o600
    assert file.path.parent.stat().st_mode & 0o777 == 0o700

    def fail(_: Contexts) -> Contexts:
        raise NotFoundError("no")

    with pytest.raises(NotFoundError):
        file.change(fail)
    assert file.read() == KNOWN
    assert sorted(path.name for path in file.path.parent.iterdir()) == [
        "contexts.yaml",
        "contexts.yaml.lock",
    ]


def test_a_link_to_the_file_stays_a_link(tmp_path: Path) -> None:
    real, link = tmp_path / "real.yaml", tmp_path / "link.yaml"
    link.symlink_to(real)
    ContextsFile(link).change(lambda _: KNOWN)
    assert link.is_symlink()
    assert ContextsFile(real).read() == KNOWN


def test_no_change_is_lost_where_many_change_it(tmp_path: Path) -> None:
    file = ContextsFile(tmp_path / "contexts.yaml", 0.001)

    def make(number: int) -> None:
        context = Context(url=f"http://gateway-{number}")
        file.change(lambda known: known.having(f"c{number}", context))

    threads = [threading.Thread(target=make, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(file.read().contexts) == 16


def test_a_lock_that_is_never_let_go_is_told(tmp_path: Path) -> None:
    with (tmp_path / "contexts.yaml.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(UnavailableError, match="locked"):
            ContextsFile(tmp_path / "contexts.yaml", 0.001).change(lambda known: known)


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ("[", "contexts.yaml: "),
        ("[1]", "contexts.yaml: "),
        ("in_use: gone", "gone"),
        ("contexts: {a: {url: nonsense}}", "contexts.a.url"),
        ("contexts: {a: {url: 'http://a', secret: x}}", "contexts.a.secret"),
        ("contexts: {'a b': {url: 'http://a'}}", "a b"),
        ("#" * (FILE_BYTES_MAX + 1), "bytes"),
        (
            yaml.safe_dump(
                {"contexts": {f"c{n}": {"url": "http://a"} for n in range(CONTEXTS_MAX + 1)}}
            ),
            str(CONTEXTS_MAX),
        ),
    ],
)  # fmt: skip
def test_a_file_that_is_none_is_told(tmp_path: Path, content: str, word: str) -> None:
    path = tmp_path / "contexts.yaml"
    path.write_text(content)
    with pytest.raises(SettingsError, match=word):
        ContextsFile(path).read()
    with pytest.raises(SettingsError):
        ContextsFile(path).change(lambda known: known)
    assert path.read_text() == content


def test_a_file_that_can_not_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match=r"contexts\.yaml"):
        ContextsFile(tmp_path / "file" / "contexts.yaml").change(lambda _: KNOWN)


def test_axiom_up_takes_no_place_of_a_users_own(tmp_path: Path) -> None:
    file = ContextsFile(tmp_path / "contexts.yaml")
    own = Context(url=DEFAULT_URL, up_pid=os.getpid())
    assert register(file, own) == "local"
    assert file.read().in_use == "local"
    withdraw(file, "local", own)
    assert file.read() == Contexts()
    users = Contexts(in_use="prod", contexts={**KNOWN.contexts, "local": Context(url="http://l")})
    file.change(lambda _: users)
    assert register(file, own) == "local-2"
    assert file.read().in_use == "prod"
    file.change(lambda known: known.having("local-2", Context(url="http://mine")))
    withdraw(file, "local-2", own)
    assert file.read().contexts["local-2"].url == "http://mine"


def test_what_a_killed_axiom_up_left_goes() -> None:
    known = Contexts(
        in_use="local",
        contexts={
            "local": Context(url="http://l", up_pid=1),
            "local-2": Context(url="http://l2", up_pid=2),
            "mine": Context(url="http://m"),
        },
    )
    left = without_dead(known, lambda pid: pid == 2)
    assert (left.in_use, set(left.contexts)) == (None, {"local-2", "mine"})
    assert free_name(left) == "local"
    assert free_name(known) == "local-3"


def axiom(*arguments: str, file: Path) -> Result:
    return CliRunner().invoke(app, ["--contexts", str(file), *arguments])


def test_the_commands(tmp_path: Path) -> None:
    file, key = tmp_path / "contexts.yaml", tmp_path / "key"
    key.write_text("axk-" + "s" * 43 + "\n")

    def told(*arguments: str) -> dict[str, object]:
        answer = axiom("contexts", *arguments, "--json", file=file)
        assert answer.exit_code == 0, answer.output
        return dict(json.loads(answer.stdout))

    assert told("list") == {"file": str(file), "in_use": None, "contexts": []}
    assert axiom("contexts", "show", file=file).exit_code == 1
    made = told("set", "prod", "--url", "https://prod/", "--key-file", str(key))
    assert made == {
        "name": "prod", "url": "https://prod", "key_file": str(key), "in_use": False
    }  # fmt: skip
    assert told("set", "test", "--url", TEST, "--use")["in_use"] is True
    assert told("use", "prod")["in_use"] is True
    assert told("show")["name"] == "prod"
    assert "*  prod" in axiom("contexts", "list", file=file).stdout
    # A new URL does not keep the old one's key.
    assert told("set", "prod", "--url", "https://other")["key_file"] is None
    assert told("delete", "prod") == {"deleted": "prod"}
    assert told("list")["in_use"] is None
    for arguments in (("use", "prod"), ("delete", "prod"), ("show", "prod")):
        answer = axiom("contexts", *arguments, "--json", file=file)
        assert answer.exit_code == 1
        assert json.loads(answer.stdout)["error"]["code"] == "not-found"
    assert "s" * 43 not in file.read_text()


def test_a_key_file_without_a_key_is_refused(tmp_path: Path) -> None:
    file, key = tmp_path / "contexts.yaml", tmp_path / "key"
    key.write_text("short")
    arguments = ("set", "a", "--url", "http://a", "--key-file", str(key))
    answer = axiom("contexts", *arguments, file=file)
    assert (answer.exit_code, file.exists()) == (2, False)
    assert str(key) in answer.stderr
