"""Whether a tokenizer keeps what `Vocabulary` promises, tried on texts that are known to be hard.

Its description can be read, but patterns are people's own: some group digits from the right, so
that one more digit moves every cut before it. So it is tried, once for each base model.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from axiom_common.model.vocabulary import Vocabulary, VocabularyRefusal

_TEXTS = (
    "It's what you're told: we'll see, they've said I'd don't.",
    "The price is 1234567 or 12 345.678,90 or 0x1F4A9 in 2024-05-06.",
    "a  b   c    d\n\n  e \t\t f \r\n\r\n   g\n \n\n \n h",
    "def f(x):\n    return {'a': [x ** 2, -1e-9]}  # why?!\n\n\nclass _A(B): pass",
    "camelCase HTTPServer iPhone ABC'S XMLHttpRequest2Foo",
    "日本語のテキストABC、中文没有空格。한국어 띄어쓰기 ไทย",
    "Привет, мир! Ünïcödé naïve café ﬁ ½ ① Ａ",
    "مرحبا بالعالم हिन्दी शब्द 👩‍👩‍👧‍👦 🙂👍🏽 🇩🇪🇫🇷",
    "say \"hello there you, (see [what {comes <b>next /* of it 'all at once",
    "<|a|> [INST] </s> <0x41> \u2581x\u2581\u2581y ...---===>>> ,.;:!?",
)
_ENDINGS = ("", "'re", "s", "1", "\n", " ", " x", "。", "é", "語", "!", '"', "'", ")]}>*/")
_WORDS_MIN = 60
"""Words in all the texts together; a pre-tokenizer that finds fewer does not cut words."""


def instability(vocabulary: Vocabulary) -> tuple[VocabularyRefusal, str] | None:
    """Why a vocabulary breaks its promises, and on which text; None when it keeps them."""
    words = 0
    for raw in _TEXTS:
        text = vocabulary.normalised(raw).decode()
        if vocabulary.normalised(text).decode() != text:
            return VocabularyRefusal.NORMALISER, f"not the same when normalised twice: {raw!r}"
        tokens, of_words = vocabulary.encoded(text)
        words += len(set(of_words))
        told = vocabulary.text_of(tokens)
        if told is not None and told != text.encode():
            return VocabularyRefusal.NOT_INVERTIBLE, f"tokens of {text!r} are {told!r}"
        problem = _not_standing(vocabulary, text)
        if told is not None:
            problem = problem or _not_resumed(vocabulary, tokens, of_words)
        if problem is not None:
            return VocabularyRefusal.UNSTABLE, problem
    if words < _WORDS_MIN:
        return VocabularyRefusal.NO_PRE_TOKENIZER, f"{words} words where people see more"
    return None


def _not_resumed(vocabulary: Vocabulary, tokens: Sequence[int], words: Sequence[int]) -> str | None:
    """Encoding that goes on at a word's beginning gives what it gives from the first byte on."""
    for first in range(1, len(tokens)):
        if words[first] == words[first - 1] or vocabulary.is_special(tokens[first - 1]):
            continue
        rest = vocabulary.text_of(tokens[first:])
        if rest is not None and vocabulary.encoded(rest.decode())[0] != tokens[first:]:
            return f"what {rest.decode()!r} is depends on what comes before"
    return None


def _not_standing(vocabulary: Vocabulary, text: str) -> str | None:
    """All words but the last two stay, however the text goes on."""
    for cut in range(1, len(text) + 1):
        tokens, words = vocabulary.encoded(text[:cut])
        standing = bisect_left(words, words[-1] - 1) if words else 0
        for ending in (*_ENDINGS, text[cut:]) if standing else ():
            if vocabulary.encoded(text[:cut] + ending)[0][:standing] != tokens[:standing]:
                return f"{text[:cut]!r} is cut otherwise before {ending!r}"
    return None
