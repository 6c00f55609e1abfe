"""A Llama of a few hundred kB with random weights, and adapters for it: same seed, same bytes.

usage: tiny_model.py FOLDER      (in the engine's environment: torch, transformers, tokenizers)

Makes FOLDER/base, the adapters FOLDER/ad0 .. ad4 of rank 8, and FOLDER/large of rank 16. A token is
a byte. Only printable ASCII has weights in the output layer, so greedy answers are readable text,
and the large spread of the weights makes them depend on prompt and adapter.

FOLDER/words is a base model of the same shape whose tokens are parts of words, with a special token
before each prompt: its answers are hardly ever the tokens that their text would become.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

SPECIALS = ("<|begin|>", "<|eos|>", "<|pad|>", "<|end|>")
HIDDEN, LAYERS, HEADS, KV_HEADS = 256, 2, 4, 2
CONTEXT = 2048
TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}:{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)
WORDS = 1024
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
PRINTABLE = [chr(code) for code in range(ord("!"), ord("~") + 1)]


def make_tokenizer() -> PreTrainedTokenizerFast:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate((*SPECIALS, *alphabet))}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return _fast(tokenizer)


def make_words_tokenizer() -> PreTrainedTokenizerFast:
    """Trained on the standard library's own source."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=WORDS,
        special_tokens=list(SPECIALS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    sources = sorted(Path(os.__file__).parent.glob("*.py"))[:40]
    tokenizer.train_from_iterator(
        (path.read_text(encoding="utf-8", errors="ignore") for path in sources), trainer
    )
    begin = SPECIALS[0]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A", special_tokens=[(begin, tokenizer.token_to_id(begin))]
    )
    return _fast(tokenizer)


def _fast(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    tokenizer.decoder = decoders.ByteLevel()
    begin, eos, pad, end = SPECIALS
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=begin,
        eos_token=eos,
        pad_token=pad,
        additional_special_tokens=[end],
    )
    fast.chat_template = TEMPLATE
    return fast


def make_base(folder: Path, tokenizer: PreTrainedTokenizerFast, printable: list[int]) -> None:
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=HIDDEN,
        intermediate_size=2 * HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        max_position_embeddings=CONTEXT,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        tie_word_embeddings=False,
        initializer_range=0.3,
        dtype="bfloat16",
    )
    torch.manual_seed(0)
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    told = torch.tensor(printable)
    with torch.no_grad():
        kept = model.lm_head.weight[told].clone()
        model.lm_head.weight.zero_()
        model.lm_head.weight[told] = kept
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def make_adapter(folder: Path, *, base: Path, seed: int, rank: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    head = HIDDEN // HEADS
    outputs = {"q_proj": HEADS * head, "v_proj": KV_HEADS * head}
    weights = {}
    for layer in range(LAYERS):
        for module, width in outputs.items():
            place = f"base_model.model.model.layers.{layer}.self_attn.{module}"
            for side, shape in (("lora_A", (rank, HIDDEN)), ("lora_B", (width, rank))):
                values = torch.randn(shape, generator=generator) * 0.1
                weights[f"{place}.{side}.weight"] = values.to(torch.bfloat16)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights, str(folder / "adapter_model.safetensors"), metadata={"format": "pt"})
    settings = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": str(base),
        "r": rank,
        "lora_alpha": 2 * rank,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": sorted(outputs),
        "inference_mode": True,
    }
    (folder / "adapter_config.json").write_text(json.dumps(settings, indent=1))


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    base = folder / "base"
    tokenizer = make_tokenizer()
    make_base(base, tokenizer, tokenizer.convert_tokens_to_ids(PRINTABLE))
    words = make_words_tokenizer()
    ascii_words = [n for n in range(len(words)) if words.decode([n]).strip().isascii()]
    make_base(folder / "words", words, [n for n in ascii_words if n >= len(SPECIALS)])
    for number in range(5):
        make_adapter(folder / f"ad{number}", base=base, seed=1000 + number, rank=8)
    make_adapter(folder / "large", base=base, seed=2000, rank=16)


if __name__ == "__main__":
    main()
