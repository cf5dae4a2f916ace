"""What is asked of the planner, put together from the fields."""

from dataclasses import dataclass, replace

from infer_engine.planner import ConfigShape, Deployment, Gpu, ModelShape, PlanError, gpu_named, model_named

from infer_console.actions.params import Given, Values
from infer_console.planning import fields

#: Of a GPU that is known by its figures alone: PCIe 5. Nothing that is planned here depends on it.
HOST_BYTES_PER_S = 63e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    deployment: Deployment
    #: Tokens of each sequence.
    context: int
    #: Shares of the KV pool up to which requests of either tier are admitted.
    batch_mark: float
    admit_mark: float
    #: Of one GPU; None where the operator did not say.
    price_per_gpu_hour: float | None = None
    notes: tuple[str, ...] = ()


def ask(given: Given, config: ConfigShape | None) -> Question:
    """``config`` is the model of the file, where one was read. Raise ParamError for a field that does not
    fit, PlanError for fields that do not go together."""
    values = {param.name: param.parse(given.get(param.name)) for param in fields.PARAMS}
    shape, notes = _model(values, config)
    deployment = Deployment(
        model=_in_types(shape, values),
        gpu=_gpu(values),
        gpus=int(fields.number(values, "gpus")),
        activation_share=fields.number(values, "workspace") / 100,
    )
    context = int(fields.number(values, "context"))
    if context > shape.context_length:
        notes = (*notes, f"{shape.name} was made for {shape.context_length:,} tokens of context at most")
    return Question(
        deployment=deployment,
        context=context,
        batch_mark=1 - fields.number(values, "batch_headroom") / 100,
        admit_mark=1 - fields.number(values, "headroom") / 100,
        price_per_gpu_hour=fields.number_or_none(values, fields.PRICE),
        notes=notes,
    )


def _model(values: Values, config: ConfigShape | None) -> tuple[ModelShape, tuple[str, ...]]:
    name = str(values[fields.MODEL])
    if name != fields.FROM_FILE:
        return model_named(name), ()
    if config is None:
        raise PlanError("config.json: a path is wanted")
    return config.shape, config.notes


def _in_types(shape: ModelShape, values: Values) -> ModelShape:
    weights, kv = str(values["weights"]), str(values["kv"])
    if weights in fields.WEIGHT_BYTES:
        shape = shape.with_weight_bytes(fields.WEIGHT_BYTES[weights])
    if kv in fields.KV_BYTES:
        shape = shape.with_kv_bytes(fields.KV_BYTES[kv])
    return shape


def _gpu(values: Values) -> Gpu:
    name = str(values[fields.GPU])
    memory_gb = fields.number_or_none(values, "memory_gb")
    bandwidth = fields.number_or_none(values, "bandwidth_tb_per_s")
    tflops = fields.number_or_none(values, "tflops")
    if name == fields.OTHER_GPU:
        if memory_gb is None or bandwidth is None or tflops is None:
            raise PlanError("an other GPU needs all of memory GB, memory TB/s and TFLOPS")
        return Gpu(
            name=name,
            memory_bytes=int(memory_gb * 1e9),
            bandwidth_bytes_per_s=bandwidth * 1e12,
            flops_per_s=tflops * 1e12,
            host_bytes_per_s=HOST_BYTES_PER_S,
        )
    gpu = gpu_named(name)
    if memory_gb is not None:
        gpu = replace(gpu, memory_bytes=int(memory_gb * 1e9))
    if bandwidth is not None:
        gpu = replace(gpu, bandwidth_bytes_per_s=bandwidth * 1e12)
    return replace(gpu, flops_per_s=tflops * 1e12) if tflops is not None else gpu
