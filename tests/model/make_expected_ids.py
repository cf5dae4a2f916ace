"""Makes expected_ids.json: what Hugging Face transformers generates, greedily and in fp32, from the default
model.

    pip install transformers accelerate
    PYTHONPATH=tests python tests/model/make_expected_ids.py

Not part of the suite: it takes minutes, and transformers is no dependency. For each of the prompts of
``support.prompts``: its ids, 64 generated ids (end-of-sequence tokens do not end it), and at each of them the
gap between the two highest logits, teacher-forced by construction. Where a gap is tiny, another order of
summation may rightly choose the other token. Also the ids that transformers' tokenizer makes of some texts
and chats.
"""

import json
from pathlib import Path

import torch
import transformers
from infer_engine.model.store import resolve
from infer_engine.model.tokenizer import Tokenizer
from infer_engine.settings import DEFAULT_MODEL
from support.prompts import CHATS, TEXTS, harbour_log, sixty_four_prompts

TOKENS = 64
OUTPUT = Path(__file__).with_name("expected_ids.json")


#: Beyond the prompts: white space in all places, contractions, digits in words, combining characters.
TRICKY = [
    "  two  spaces\n\n\tand tabs ",
    "I'm sure you'll see they've DON'T",
    "x1234y 3.14159",
    "e\u0301 \r\n\r\n a\u00a0b",
    "\U0001f469\u200d\U0001f680",
]


def main() -> None:
    path = resolve(DEFAULT_MODEL)
    cases = generations(path)
    versions = {"transformers": transformers.__version__, "torch": torch.__version__}
    document = {
        "made_by": "tests/model/make_expected_ids.py",
        **versions,
        "cases": cases,
        **tokenizations(path),
    }
    OUTPUT.write_text(json.dumps(document))


def tokenizations(path: Path) -> dict[str, list[dict[str, object]]]:
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)

    def chat(text: str) -> list[int]:
        messages = [{"role": "user", "content": text}]
        return tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)

    texts = [*TEXTS, *TRICKY, harbour_log(2)]
    return {
        "texts": [
            {"text": text, "ids": tokenizer(text, add_special_tokens=False).input_ids} for text in texts
        ],
        "chats": [{"text": text, "ids": chat(text)} for text in [*CHATS, *TRICKY]],
    }


def generations(path: Path) -> list[dict[str, list[int] | list[float]]]:
    model = transformers.AutoModelForCausalLM.from_pretrained(
        str(path.parent), gguf_file=path.name, dtype=torch.float32
    ).eval()
    cases = []
    for prompt in sixty_four_prompts(Tokenizer.from_file(path)):
        ids = torch.tensor([prompt])
        out = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=TOKENS,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
            return_dict_in_generate=True,
            output_logits=True,
        )
        best = torch.stack(out.logits)[:, 0].topk(2, dim=-1).values
        cases.append(
            {
                "prompt": prompt,
                "expected": out.sequences[0, len(prompt) :].tolist(),
                "gaps": [round(gap, 5) for gap in (best[:, 0] - best[:, 1]).tolist()],
            }
        )
        print(len(prompt), "tokens, smallest gap", min(cases[-1]["gaps"]))
    return cases


if __name__ == "__main__":
    main()
