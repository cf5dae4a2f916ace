"""Makes expected_logits.npz: what Hugging Face transformers computes, in fp32, from the tiny models of
``support.tiny_families``.

    pip install transformers gguf
    PYTHONPATH=tests python tests/model/make_expected_logits.py

Not part of the suite: transformers is no dependency. For each model, the logits [40, 48] after each token of
its prompt.
"""

import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers
from support.tiny_families import FAMILIES, PROMPT, write_hf

OUTPUT = Path(__file__).with_name("expected_logits.npz")


def main() -> None:
    logits: dict[str, np.ndarray] = {}
    for model in FAMILIES:
        with tempfile.TemporaryDirectory() as directory:
            path = write_hf(Path(directory) / model.name, model)
            loaded, info = transformers.AutoModelForCausalLM.from_pretrained(
                path, dtype=torch.float32, output_loading_info=True, attn_implementation="eager"
            )
            assert not info["missing_keys"], info
            assert not info["unexpected_keys"], info
            with torch.inference_mode():
                logits[model.name] = loaded.eval()(torch.tensor([PROMPT])).logits[0].numpy()
        print(model.name, type(loaded).__name__, float(np.abs(logits[model.name]).max()))
    np.savez_compressed(OUTPUT, **logits)


if __name__ == "__main__":
    main()
