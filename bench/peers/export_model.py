"""Run by the transformers environment: a GGUF file as a Hugging Face directory of fp32 safetensors.

python export_model.py FILE.gguf DIRECTORY
"""

import os
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def main() -> None:
    source, target = Path(sys.argv[1]), sys.argv[2]
    where = {"pretrained_model_name_or_path": str(source.parent), "gguf_file": source.name}
    model = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    # Else saving refuses: the weights are not quantised any more.
    model.hf_quantizer = None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(target)
    AutoTokenizer.from_pretrained(**where).save_pretrained(target)


if __name__ == "__main__":
    main()
