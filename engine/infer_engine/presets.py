"""Models and GPUs that are known by name."""

from typing import Any

from infer_engine.parameter_count import Decoder
from infer_engine.shapes import Gpu, ModelShape, PlanError


def _gpu(name: str, memory_gb: float, bandwidth_tb_per_s: float, tflops: float, host_gb_per_s: float) -> Gpu:
    return Gpu(
        name=name,
        memory_bytes=int(memory_gb * 1e9),
        bandwidth_bytes_per_s=bandwidth_tb_per_s * 1e12,
        flops_per_s=tflops * 1e12,
        host_bytes_per_s=host_gb_per_s * 1e9,
    )


#: HBM in GB, TB/s, dense bf16 TFLOPS (fp32 accumulation), GB/s to the host, as the vendors' data sheets state
#: them: NVIDIA H100 (SXM and PCIe), H200, GH200 (96 GB), H20, B200 (as in HGX), A100, A10, L40S, L4, GeForce
#: RTX 4090 and 5090; AMD Instinct MI300X and MI325X.
GPUS = {
    gpu.name: gpu
    for gpu in (
        _gpu("h100", 80, 3.35, 989, 63),
        _gpu("h100-pcie", 80, 2.0, 756, 63),
        _gpu("h200", 141, 4.8, 989, 63),
        _gpu("gh200", 96, 4.0, 989, 450),
        _gpu("h20", 96, 4.0, 148, 63),
        _gpu("b200", 180, 7.7, 2250, 63),
        _gpu("a100", 80, 2.039, 312, 31.5),
        _gpu("a100-40gb", 40, 1.555, 312, 31.5),
        _gpu("a10", 24, 0.6, 125, 31.5),
        _gpu("l40s", 48, 0.864, 362, 31.5),
        _gpu("l4", 24, 0.3, 121, 31.5),
        _gpu("rtx4090", 24, 1.008, 165, 31.5),
        _gpu("rtx5090", 32, 1.792, 209, 63),
        _gpu("mi300x", 192, 5.3, 1307, 63),
        _gpu("mi325x", 256, 6.0, 1307, 63),
    )
}


def _dense(name: str, context_length: int, decoder: Decoder) -> ModelShape:
    """With its parameters counted from its shape."""
    return ModelShape(
        name=name,
        layers=decoder.layers,
        heads=decoder.heads,
        kv_heads=decoder.kv_heads,
        head_dim=decoder.head_dim,
        parameters=decoder.parameters().total,
        vocab_size=decoder.vocab_size,
        context_length=context_length,
    )


def _llama(name: str, layers: int, hidden: int, heads: int, feed_forward: int, **rest: Any) -> ModelShape:
    """Llama 3: eight KV heads, a vocabulary of 128,256, a context of 131,072."""
    shape: dict[str, Any] = {"kv_heads": 8, "head_dim": 128, "vocab_size": 128_256, **rest}
    decoder = Decoder(layers=layers, hidden=hidden, heads=heads, feed_forward=feed_forward, **shape)
    return _dense(name, 131_072, decoder)


def _qwen25(
    name: str, layers: int, hidden: int, heads: int, kv_heads: int, feed_forward: int, **rest: Any
) -> ModelShape:
    shape: dict[str, Any] = {"head_dim": 128, "vocab_size": 152_064, **rest}
    decoder = Decoder(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        feed_forward=feed_forward,
        qkv_bias=True,
        **shape,
    )
    return _dense(name, 32_768, decoder)


def _qwen3(name: str, layers: int, hidden: int, heads: int, feed_forward: int, *, tied: bool) -> ModelShape:
    decoder = Decoder(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=8,
        head_dim=128,
        feed_forward=feed_forward,
        vocab_size=151_936,
        tied=tied,
        qk_norm=True,
    )
    return _dense(name, 40_960, decoder)


def _smollm2(
    name: str, *, layers: int, hidden: int, heads: int, kv_heads: int, feed_forward: int
) -> ModelShape:
    decoder = Decoder(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=64,
        feed_forward=feed_forward,
        vocab_size=49_152,
        tied=True,
    )
    return _dense(name, 8192, decoder)


#: Shapes as in the ``config.json`` that each is published with on Hugging Face (meta-llama, Qwen, mistralai,
#: HuggingFaceTB), served in 16 bits. ``70b`` is the round number of napkins.
MODELS = {
    model.name: model
    for model in (
        ModelShape(
            name="70b",
            layers=80,
            heads=64,
            kv_heads=8,
            head_dim=128,
            parameters=70_000_000_000,
            vocab_size=128_256,
            context_length=131_072,
        ),
        _llama("8b", 32, 4096, 32, 14_336),
        _llama("llama-3.2-1b", 16, 2048, 32, 8192, head_dim=64, tied=True),
        _llama("llama-3.2-3b", 28, 3072, 24, 8192, tied=True),
        _llama("llama-3.1-8b", 32, 4096, 32, 14_336),
        _llama("llama-3.1-70b", 80, 8192, 64, 28_672),
        _llama("llama-3.1-405b", 126, 16_384, 128, 53_248),
        _qwen25("qwen2.5-0.5b", 24, 896, 14, 2, 4864, head_dim=64, vocab_size=151_936, tied=True),
        _qwen25("qwen2.5-1.5b", 28, 1536, 12, 2, 8960, vocab_size=151_936, tied=True),
        _qwen25("qwen2.5-7b", 28, 3584, 28, 4, 18_944),
        _qwen25("qwen2.5-14b", 48, 5120, 40, 8, 13_824),
        _qwen25("qwen2.5-32b", 64, 5120, 40, 8, 27_648),
        _qwen25("qwen2.5-72b", 80, 8192, 64, 8, 29_568),
        _qwen3("qwen3-0.6b", 28, 1024, 16, 3072, tied=True),
        _qwen3("qwen3-4b", 36, 2560, 32, 9728, tied=True),
        _qwen3("qwen3-8b", 36, 4096, 32, 12_288, tied=False),
        _qwen3("qwen3-14b", 40, 5120, 40, 17_408, tied=False),
        _qwen3("qwen3-32b", 64, 5120, 64, 25_600, tied=False),
        _dense(
            "mistral-7b",
            32_768,
            Decoder(
                layers=32,
                hidden=4096,
                heads=32,
                kv_heads=8,
                head_dim=128,
                feed_forward=14_336,
                vocab_size=32_768,
            ),
        ),
        _smollm2("smollm2-135m-instruct", layers=30, hidden=576, heads=9, kv_heads=3, feed_forward=1536),
        _smollm2("smollm2-1.7b", layers=24, hidden=2048, heads=32, kv_heads=32, feed_forward=8192),
    )
}

#: What people call them.
ALIASES = {"llama-8b": "llama-3.1-8b", "llama-70b": "llama-3.1-70b", "llama-405b": "llama-3.1-405b"}


def model_named(name: str) -> ModelShape:
    """A preset, upper or lower case; raises PlanError listing the names there are."""
    wanted = name.lower()
    wanted = ALIASES.get(wanted, wanted)
    if wanted not in MODELS:
        raise PlanError(f"no model {name!r} is known here: {', '.join(MODELS)}")
    return MODELS[wanted]


def gpu_named(name: str) -> Gpu:
    """A preset, upper or lower case; raises PlanError listing the names there are."""
    if name.lower() not in GPUS:
        raise PlanError(f"no GPU {name!r} is known here: {', '.join(GPUS)}")
    return GPUS[name.lower()]
