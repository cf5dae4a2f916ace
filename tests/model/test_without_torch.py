import subprocess
import sys
from pathlib import Path

import pytest
from support.tiny_families import TinyFamily, write_hf
from support.tiny_tokenizers import SMOLLM, write_tokenizer

PROGRAM = """
import sys
from pathlib import Path
from infer_engine.model import architecture, sampling, store
from infer_engine.model.source import open_source
from infer_engine.model.tokenizer import Tokenizer

source = open_source(store.resolve(sys.argv[1]))
tokenizer = Tokenizer(source)
assert tokenizer.decode(tokenizer.encode("hello")) == "hello"
assert architecture.read_architecture(source).layers == 2
print(sorted({"torch", "gguf"} & sys.modules.keys()))
"""


@pytest.mark.parametrize("kind", ["GGUF", "directory"])
def test_what_the_server_process_uses_of_the_model_loads_no_torch(
    kind: str, tiny_path: Path, tmp_path: Path
) -> None:
    path = tiny_path
    if kind == "directory":
        path = write_hf(tmp_path / "m", TinyFamily(name="m", vocabulary=400))
        write_tokenizer(path, SMOLLM)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path)], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr
