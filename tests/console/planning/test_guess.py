"""Names as people and servers use them."""

import re

import pytest
from infer_console.planning.guess import guess_gpu, guess_model
from infer_console.planning.live import live_figures
from infer_console.state.picture import Link, Picture, ReplicaPicture
from infer_console.view.look import Look, Size
from infer_console.view.planner_form import PlannerForm
from infer_console.view.planner_screen import planner_screen
from infer_console.view.planner_taken import take_over
from infer_console.view.row import plain
from infer_engine.protocol import Fleet, Kv, Percentiles, Replica, Totals


@pytest.mark.parametrize(
    ("served", "model"),
    [
        ("meta-llama/Llama-3.1-70B-Instruct", "llama-3.1-70b"),
        ("/models/Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf", "llama-3.1-8b"),
        ("smollm2-135m-instruct.gguf", "smollm2-135m-instruct"),
        ("Qwen/Qwen2.5-7B-Instruct", "qwen2.5-7b"),
        ("somebody/their-own-70b", None),
        ("llama-70b", "llama-3.1-70b"),
        ("mistralai/Mixtral-of-nothing", None),
        ("llama-3.1-700b", None),
        ("–", None),
    ],
)
def test_models(served: str, model: str | None) -> None:
    assert guess_model(served) == model


@pytest.mark.parametrize(
    ("device", "gpu"),
    [
        ("NVIDIA H100 80GB HBM3", ("h100", 1)),
        ("2 × NVIDIA H100 80GB HBM3", ("h100", 2)),
        ("NVIDIA A100-PCIE-40GB", ("a100-40gb", 1)),
        ("NVIDIA GeForce RTX 4090", ("rtx4090", 1)),
        ("Riva 128", None),
    ],
)
def test_gpus(device: str, gpu: tuple[str, int] | None) -> None:
    assert guess_gpu(device) == gpu


def test_a_watched_server_beside_the_theory() -> None:
    row = Replica(
        id="a",
        state="ready",
        running=8,
        kv=Kv(block_size=16, total=27_000, used=4_000),
        tokens_per_s=310.0,
        itl_s=Percentiles(p50=0.024),
        foreign="vLLM",
        device="4 × NVIDIA H100 80GB HBM3",
    )
    picture = Picture(
        at=0.0,
        link=Link(url="vllm+http://a", state="live"),
        capabilities=frozenset({"watched"}),
        fleet=Fleet(name="a", model="meta-llama/Llama-3.1-70B-Instruct"),
        totals=Totals(replicas=1, ready=1, running=8, tokens_per_s=310.0, itl_s=Percentiles(p50=0.024)),
        replicas={"a": ReplicaPicture(status=row)},
    )
    live = live_figures(picture, "a")
    assert (live.kv_pool_tokens, live.kv_used_tokens, live.kv_bytes_per_token) == (432_000, 64_000, None)
    form = PlannerForm()
    assert take_over(form, picture, "a")
    assert (form.field("model").text, form.field("gpu").text, form.field("gpus").text) == (
        "llama-3.1-70b",
        "h100",
        "4",
    )
    rows = [plain(each) for each in planner_screen(picture, Look(replica="a"), form, Size(200, 50), 0.0)]
    lines = {
        name: next(each for each in rows if each.startswith(f" {name}")) for name in ("KV pool", "ITL p50")
    }
    assert "432,000 tok" in lines["KV pool"]
    assert "24" in lines["ITL p50"]
    assert not any("not the model" in each for each in rows)


def small(device: str) -> Picture:
    """``smollm2`` in 32 bits, with the KV of the 135M."""
    row = Replica(
        id="r0",
        state="ready",
        running=2,
        kv=Kv(block_size=16, total=512, used=40, bytes_per_token=46_080),
        tokens_per_s=61.0,
        itl_s=Percentiles(p50=0.03),
        device=device,
    )
    return Picture(
        at=0.0,
        link=Link(url="unix:///s", state="live"),
        fleet=Fleet(name="a", model="smollm2"),
        totals=Totals(replicas=1, ready=1, running=2, tokens_per_s=61.0, itl_s=Percentiles(p50=0.03)),
        replicas={"r0": ReplicaPicture(status=row)},
    )


def planned(picture: Picture, form: PlannerForm, size: Size) -> str:
    return "\n".join(plain(each) for each in planner_screen(picture, Look(), form, size, 0.0))


def test_a_familys_name_is_the_model_whose_kv_fits_and_its_kv_type_is_taken() -> None:
    form = PlannerForm()
    take_over(form, small("cpu"), None)
    assert (form.field("model").text, form.field("kv").text) == ("smollm2-135m-instruct", "fp32")
    assert guess_model("smollm2", 1) is None


def test_theory_of_another_model_or_other_hardware_is_not_compared() -> None:
    form = PlannerForm()
    size = Size(200, 50)
    assert "not the model or KV type asked for" in planned(small("cpu"), form, size)
    take_over(form, small("cpu"), None)
    unknown = planned(small("cpu"), form, size)
    assert "△ not of this hardware" in unknown
    shown = next(row for row in unknown.splitlines() if row.startswith(" tokens/s"))
    assert shown[:44].split() == ["tokens/s", "61", "–"]
    assert "not of this hardware" not in planned(small("NVIDIA H100"), form, size)
    form.focus = [field.param.name for field in form.fields].index("gpu")
    form.step(1)
    assert "not of this hardware" not in planned(small("cpu"), form, size)
    assert "it runs on h100" in planned(small("NVIDIA H100"), form, size)


@pytest.mark.parametrize("size", [Size(120, 36), Size(80, 24)])
def test_numbers_of_a_small_model_are_whole_and_apart(size: Size) -> None:
    form = PlannerForm()
    take_over(form, small("cpu"), None)
    for scrolled in range(0, 60, 8):
        form.scrolled = scrolled
        for row in planned(small("cpu"), form, size).splitlines():
            assert not re.search(r"\d[.,]?\s?…", row), row
            assert not re.search(r"tok\d", row), row
