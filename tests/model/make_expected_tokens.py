"""Makes expected_tokens.json: what Hugging Face transformers makes of texts and chats with the tiny
tokenizers of ``support.tiny_tokenizers``.

    pip install transformers gguf
    PYTHONPATH=tests python tests/model/make_expected_tokens.py

Not part of the suite: transformers is no dependency.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import transformers
from support.tiny_tokenizers import CHATS, QWEN, TEXTS, TOKENIZERS, TinyTokenizer, write_tokenizer

OUTPUT = Path(__file__).with_name("expected_tokens.json")


def main() -> None:
    document: dict[str, Any] = {"transformers": transformers.__version__}
    for kind in TOKENIZERS:
        with tempfile.TemporaryDirectory() as directory:
            write_tokenizer(Path(directory), kind)
            document[kind.name] = expected(transformers.AutoTokenizer.from_pretrained(directory), kind)
    OUTPUT.write_text(json.dumps(document))


def expected(tokenizer: Any, kind: TinyTokenizer) -> dict[str, Any]:
    if kind is QWEN:
        check_words(tokenizer)
    return {
        "texts": [tokenizer(text).input_ids for text in TEXTS],
        "chats": [
            tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
            for chat in CHATS
        ],
        "rendered": [
            tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False) for chat in CHATS
        ],
        "decoded": [tokenizer.decode(tokenizer(text).input_ids, skip_special_tokens=True) for text in TEXTS],
    }


def check_words(tokenizer: Any) -> None:
    """The rule by which ours tells words apart is the one in transformers' own Qwen2 tokenizer."""
    theirs = transformers.Qwen2Tokenizer(
        vocab={token: id for token, id in QWEN.ids().items() if id < len(QWEN.vocabulary())},
        merges=[tuple(merge.split(" ")) for merge in QWEN.merges()],
    )
    for text in TEXTS:
        if "<" not in text:
            assert theirs(text).input_ids == tokenizer(text).input_ids, text


if __name__ == "__main__":
    main()
