"""What `axiom bench index` measures of an agent's mirror, in a process: prints one JSON object.

`python -m axiom_cli.bench.mirror_work`. The tokenizer is no model's, for none is at hand: it is
byte-level, cuts words as Llama 3's does and is trained on the text that is measured, to as many
words as make a token of that text as long as a large model's tokenizer makes it: 4.2 bytes.
`axiom bench mirror` measures any other.
"""

from __future__ import annotations

import json

from tokenizers import Regex, Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split
from tokenizers.trainers import BpeTrainer

from axiom_cli.bench.mirror import stored_us_block, text
from axiom_common.drivers.tokenizer_vocabulary import TokenizerVocabulary

BLOCKS = 5_000
ROUNDS = 2
WORDS = 8_000
_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def measure(told: str, blocks: int) -> dict[str, float]:
    """The figures of `axiom bench mirror`, of a text."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = Sequence(
        [
            Split(Regex(_SPLIT), "isolated"),
            ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    trainer = BpeTrainer(
        vocab_size=WORDS, initial_alphabet=ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator([told], trainer)
    return stored_us_block(TokenizerVocabulary(tokenizer.to_str()), told, blocks, ROUNDS)


if __name__ == "__main__":
    print(json.dumps(measure(text(), BLOCKS)))
