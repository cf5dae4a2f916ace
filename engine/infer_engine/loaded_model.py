"""What the server itself needs of the model: its name, its tokenizer, its context length."""

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path

from infer_engine.fetching import fetch_model
from infer_engine.fleet.views import model_name, served_model
from infer_engine.model.architecture import read_architecture
from infer_engine.model.hf_directory import CONFIG, HfDirectory
from infer_engine.model.json_file import read_json
from infer_engine.model.source import open_source
from infer_engine.model.store import resolve
from infer_engine.model.tokenizer import Tokenizer
from infer_engine.settings import DEFAULT_MODEL, ServerSettings

MOST_CONFIG_BYTES = 1 << 20
#: Where the model does not say: what the servers say decides.
UNKNOWN_CONTEXT = 1 << 20


@dataclass(frozen=True, slots=True)
class LoadedModel:
    name: str
    tokenizer: Tokenizer
    context_length: int


async def load_model(settings: ServerSettings) -> LoadedModel:
    """Of a model that is simulated only the name and the context: text is cut into tokens by another's
    tokenizer."""
    name = settings.replica.model
    if settings.upstreams and name != DEFAULT_MODEL:
        return await asyncio.to_thread(_read_tokenizer, name, await asyncio.to_thread(resolve, name))
    path = await (fetch_model(name) if name == DEFAULT_MODEL else asyncio.to_thread(resolve, name))
    model = await asyncio.to_thread(_read_model, name, path)
    deployment = settings.deployment
    if deployment is None:
        return model
    return replace(model, name=served_model(settings), context_length=deployment.model.context_length)


def _read_model(name: str, path: Path) -> LoadedModel:
    source = open_source(path)
    return LoadedModel(
        name=model_name(name),
        context_length=read_architecture(source).context_length,
        tokenizer=Tokenizer(source),
    )


def _read_tokenizer(name: str, path: Path) -> LoadedModel:
    """Of a model that upstreams serve: its weights need not be here, nor need its architecture be known."""
    if not path.is_dir():
        return _read_model(name, path)
    config = read_json(path / CONFIG, MOST_CONFIG_BYTES)
    context: object = config.values.get("max_position_embeddings")
    return LoadedModel(
        name=model_name(name),
        context_length=context if isinstance(context, int) and context > 1 else UNKNOWN_CONTEXT,
        tokenizer=Tokenizer(HfDirectory(path, config, {})),
    )
