import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
from pathlib import Path
from infer_engine.model import architecture, sampling, store
from infer_engine.model.gguf_file import read_gguf
from infer_engine.model.tokenizer import Tokenizer

source = read_gguf(store.resolve(sys.argv[1]))
tokenizer = Tokenizer(source)
assert tokenizer.decode(tokenizer.encode("hello")) == "hello"
assert architecture.read_architecture(source).layers == 2
print(sorted({"torch", "gguf"} & sys.modules.keys()))
"""


def test_what_the_server_process_uses_of_the_model_loads_no_torch(tiny_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tiny_path)], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr
