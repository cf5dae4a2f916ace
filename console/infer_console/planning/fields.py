"""What the planner is asked, field by field: the screen's fields and the command line's options."""

from infer_engine.planner import GPUS, MODELS, MOST_GPUS

from infer_console.actions.params import Param, Values

#: Choices that stand for a file, and for a GPU whose figures are given.
FROM_FILE, OTHER_GPU = "config.json", "other"
MODEL, CONFIG, GPU, PRICE = "model", "config", "gpu", "price"
#: Bytes of one parameter, or of one element of K or V. As published: of the model's file, 16 bits in presets.
PUBLISHED = "published"
WEIGHT_BYTES = {"fp32": 4.0, "bf16": 2.0, "fp8": 1.0, "int4": 0.5}
KV_BYTES = {"fp32": 4.0, "bf16": 2.0, "fp8": 1.0}
MOST_CONTEXT = 10_000_000
MOST_PATH = 256

PARAMS: tuple[Param, ...] = (
    Param(
        name=MODEL,
        kind="choice",
        label="model",
        default="70b",
        choices=(*MODELS, FROM_FILE),
        hint="a known model, or the file below",
    ),
    Param(
        name=CONFIG,
        kind="text",
        label="config.json",
        default="",
        highest=MOST_PATH,
        hint="path of a Hugging Face config.json, or of the directory it is in",
    ),
    Param(
        name=GPU,
        kind="choice",
        label="GPU",
        default="h100",
        choices=(*GPUS, OTHER_GPU),
        hint="a known GPU, or other with its three figures below",
    ),
    Param(
        name="memory_gb",
        kind="number",
        label="memory GB",
        lowest=0.1,
        highest=10_000,
        optional=True,
        step=8,
        hint="of one GPU, 10^9 bytes; empty: by its data sheet",
    ),
    Param(
        name="bandwidth_tb_per_s",
        kind="number",
        label="memory TB/s",
        lowest=0.001,
        highest=1_000,
        optional=True,
        step=0.1,
        hint="of one GPU; empty: by its data sheet",
    ),
    Param(
        name="tflops",
        kind="number",
        label="TFLOPS",
        lowest=0.01,
        highest=1_000_000,
        optional=True,
        step=10,
        hint="of one GPU, dense, in the type that is computed in; empty: bf16 by its data sheet",
    ),
    Param(
        name="gpus",
        kind="number",
        label="GPUs",
        default="4",
        lowest=1,
        highest=MOST_GPUS,
        whole=True,
        step=1,
        hint="under one copy of the model",
    ),
    Param(
        name="weights",
        kind="choice",
        label="weights",
        default=PUBLISHED,
        choices=(PUBLISHED, *WEIGHT_BYTES),
        hint="type of the weights; presets are published in 16 bits",
    ),
    Param(
        name="kv",
        kind="choice",
        label="KV",
        default=PUBLISHED,
        choices=(PUBLISHED, *KV_BYTES),
        hint="type of K and V; 16 bits unless the model is published in 32",
    ),
    Param(
        name="context",
        kind="number",
        label="context",
        default="8000",
        lowest=1,
        highest=MOST_CONTEXT,
        whole=True,
        step=1_000,
        hint="tokens of one sequence, prompt and answer; also the prompt that is prefilled",
    ),
    Param(
        name="workspace",
        kind="number",
        label="workspace %",
        default="6.25",
        lowest=0,
        highest=90,
        step=1,
        hint="of the memory, for activations and the runtime: 6.25 is 5 GB of 80",
    ),
    Param(
        name="headroom",
        kind="number",
        label="headroom %",
        default="10",
        lowest=0,
        highest=100,
        step=1,
        hint="of the KV pool that interactive requests leave free: the admit mark",
    ),
    Param(
        name="batch_headroom",
        kind="number",
        label="batch headroom %",
        default="35",
        lowest=0,
        highest=100,
        step=1,
        hint="of the KV pool that batch requests leave free: the batch mark, and what to plan with",
    ),
    Param(
        name=PRICE,
        kind="number",
        label="GPU hour costs",
        lowest=0,
        highest=1_000_000,
        optional=True,
        step=0.1,
        hint="what you pay for one GPU and hour, in your currency; never guessed",
    ),
)


def number(values: Values, name: str) -> float:
    """A number that is always there."""
    value = values[name]
    if not isinstance(value, float):
        raise TypeError(f"{name} is no number")
    return value


def number_or_none(values: Values, name: str) -> float | None:
    value = values[name]
    return value if isinstance(value, float) else None
