"""What the server itself needs of the model: its name, its tokenizer, its context length."""

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path

from infer_engine.fetching import fetch_model
from infer_engine.fleet.views import model_name, served_model
from infer_engine.model.architecture import read_architecture
from infer_engine.model.source import open_source
from infer_engine.model.store import resolve
from infer_engine.model.tokenizer import Tokenizer
from infer_engine.settings import DEFAULT_MODEL, ServerSettings


@dataclass(frozen=True, slots=True)
class LoadedModel:
    name: str
    tokenizer: Tokenizer
    context_length: int


async def load_model(settings: ServerSettings) -> LoadedModel:
    """Of a model that is simulated only the name and the context: text is cut into tokens by another's
    tokenizer."""
    name = settings.replica.model
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
