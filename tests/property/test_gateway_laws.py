"""Laws of the gateway's request parsing and answer rewriting."""

from __future__ import annotations

import contextlib
import itertools
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from axiom_gateway.errors import ApiError
from axiom_gateway.openai_requests import Endpoint, parse
from axiom_gateway.rewrite import Renaming, StreamRewriter

SERVED = "support-bot~1"
PUBLIC = "support-bot"

TEXT = st.one_of(
    st.text(),
    st.sampled_from(
        [
            f'"model":"{SERVED}"',
            f'{{"model": "{SERVED}"}}',
            '\\"model\\":',
            "data: {\n\n",
            "model",
            "🧠 é\u2028",
        ]
    ),
)
LEAF = st.one_of(st.none(), st.booleans(), st.integers(-(2**53), 2**53), TEXT)
JSON_VALUE = st.recursive(
    LEAF,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(TEXT, st.just("model")), inner, max_size=3),
    ),
    max_leaves=8,
)
OBJECT = st.dictionaries(
    st.one_of(st.sampled_from(["id", "model", "choices", "error"]), TEXT), JSON_VALUE, max_size=4
)


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """Server-sent events: JSON in any style, comments, the end mark."""
    out = []
    for _ in range(draw(st.integers(1, 5))):
        document = draw(OBJECT) | draw(st.sampled_from([{}, {"model": SERVED}]))
        if isinstance(document.get("error"), dict):
            del document["error"]  # An error is made anew, see below.
        style: dict[str, Any] = draw(
            st.sampled_from([{"separators": (",", ":")}, {"ensure_ascii": False}])
        )
        lead = draw(st.sampled_from(["data: ", "data:", ": ping\ndata: ", "id: 1\ndata: "]))
        end = draw(st.sampled_from(["\n\n", "\r\n\r\n"]))
        out.append(lead + json.dumps(document, **style) + end)
    out.append(draw(st.sampled_from(["data: [DONE]\n\n", "data: [DONE]", ""])))
    return "".join(out).encode("utf-8", "surrogatepass")


RENAMING = Renaming(SERVED, PUBLIC)


def _rewritten(stream: bytes, cuts: list[int], renaming: Renaming = RENAMING) -> bytes:
    rewriter = StreamRewriter(renaming)
    edges = [0, *sorted(c % (len(stream) + 1) for c in cuts), len(stream)]
    pieces = [rewriter.feed(stream[a:b]) for a, b in itertools.pairwise(edges) if a < b]
    return b"".join(pieces) + rewriter.finish()


@given(streams(), st.lists(st.integers(0, 10_000), max_size=12))
def test_a_stream_cut_anywhere_is_rewritten_as_if_whole(stream: bytes, cuts: list[int]) -> None:
    assert _rewritten(stream, cuts) == _rewritten(stream, [])


@given(streams(), st.lists(st.integers(0, 10_000), max_size=12))
def test_without_a_name_to_put_in_the_stream_passes_as_it_is(
    stream: bytes, cuts: list[int]
) -> None:
    assert _rewritten(stream, cuts, Renaming(SERVED, SERVED)) == stream


@given(streams())
def test_each_event_changes_in_its_top_level_model_alone(stream: bytes) -> None:
    before = [line for line in stream.split(b"\n") if line.startswith(b"data:")]
    after = [line for line in _rewritten(stream, []).split(b"\n") if line.startswith(b"data:")]
    assert len(before) == len(after)
    for old, new in zip(before, after, strict=True):
        if b"[DONE]" in old[:12]:
            assert new == old
            continue
        document = json.loads(old[5:])
        if "model" in document:
            document["model"] = PUBLIC
        assert json.loads(new[5:]) == document


@given(
    st.text(st.characters(exclude_characters="<", exclude_categories=["Cs"]), min_size=1),
    st.sampled_from([f"{SERVED}: %s", "%s", f"%s {SERVED}."]),
)
def test_an_error_event_keeps_its_words_and_loses_the_engines_name(text: str, frame: str) -> None:
    event = json.dumps({"error": {"message": frame % text, "code": 404}})
    said = json.loads(_rewritten(f"data: {event}\n\n".encode(), [])[6:])["error"]
    assert said["code"] == 404
    assert said["message"] == (frame % text).replace(SERVED, PUBLIC)


@given(OBJECT)
def test_a_document_changes_in_its_top_level_model_alone(document: dict[str, Any]) -> None:
    changed = json.loads(RENAMING.document(json.dumps(document).encode()))
    assert changed == (document | {"model": PUBLIC} if "model" in document else document)


@given(st.binary(max_size=200))
def test_what_is_no_document_passes_without_the_engines_name(junk: bytes) -> None:
    with contextlib.suppress(ValueError):
        if isinstance(json.loads(junk), dict):
            return
    assert RENAMING.document(junk) == junk
    assert RENAMING.document(b"<" + SERVED.encode() + b">" + junk) == (
        b"<" + PUBLIC.encode() + b">" + junk
    )


BODY = st.one_of(
    st.binary(max_size=200),
    st.builds(lambda d: json.dumps(d).encode(), JSON_VALUE),
    st.builds(
        lambda d: json.dumps(d).encode(),
        st.dictionaries(
            st.sampled_from(["model", "messages", "prompt", "input", "stream", "n", "top_p"]),
            JSON_VALUE,
        ),
    ),
)


@given(st.sampled_from(Endpoint), BODY)
def test_parsing_yields_a_request_or_the_typed_error(endpoint: Endpoint, body: bytes) -> None:
    try:
        parsed = parse(endpoint, body)
    except ApiError:
        return
    sent = json.loads(parsed.body_for("served"))
    assert sent.pop("model") == "served"
    assert sent == {k: v for k, v in json.loads(body).items() if k != "model"}
