"""The KV grid of ``plan --sentence``: tokens of the engine that can be reached, or words alone."""

import asyncio
from argparse import Namespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from infer_engine.planner import Deployment
    from infer_engine.protocol import Tokenized

    from infer_console.planning.kv_grid import KvGrid
    from infer_console.planning.sentence import Sentence


class Asked:
    """``trouble`` is what does not fit of what was given; empty where all does."""

    def __init__(self, arguments: Namespace) -> None:
        from infer_engine.protocol import MOST_SENTENCE

        from infer_console.planning.kv_grid import MOST_STEPS

        self.text: str = arguments.sentence
        self.trouble = ""
        if not self.text.strip() or len(self.text) > MOST_SENTENCE:
            self.trouble = (
                f"--sentence: {len(self.text)} characters were given, allowed are 1 to {MOST_SENTENCE}"
            )
        given: str = arguments.steps
        self.steps = int(given) if given.isascii() and given.isdigit() and len(given) < 6 else -1
        if not 0 <= self.steps <= MOST_STEPS:
            self.trouble = (
                f"--steps: {given[:20]!r} was given, allowed is a whole number from 0 to {MOST_STEPS}"
            )
        self._connect: list[str] = arguments.connect

    def answer(self, deployment: "Deployment") -> "tuple[Sentence, KvGrid | None, str]":
        """Why there are no tokens, where there are none."""
        from infer_engine.settings import ReplicaSettings

        from infer_console.planning.kv_grid import KvGrid
        from infer_console.planning.sentence import cut

        tokenized, block_size, why = self._tokenized()
        sentence = cut(self.text, tokenized)
        if not sentence.tokens:
            return sentence, None, why or "the tokenizer makes no tokens of it"
        size = block_size or ReplicaSettings().block_size
        return sentence, KvGrid(deployment, len(sentence.tokens), self.steps, size), ""

    def _tokenized(self) -> "tuple[Tokenized | None, int | None, str]":
        from infer_console.connect import ConnectError, resolve_running
        from infer_console.sources.client import EngineClient
        from infer_console.sources.engine import describe
        from infer_console.sources.failures import NotUnderstoodError, RefusedError, UnreachableError

        async def ask() -> "tuple[Tokenized, int | None]":
            async with EngineClient(resolve_running(self._connect)) as client:
                tokenized = await client.tokenize(self.text)
                replicas = (await client.state()).replicas
            return tokenized, next((each.kv.block_size for each in replicas if each.kv.block_size), None)

        try:
            return *asyncio.run(ask()), ""
        except ConnectError as error:
            return None, None, str(error)
        except (UnreachableError, RefusedError, NotUnderstoodError) as failure:
            return None, None, f"no engine's tokenizer could be asked: {describe(failure)}"


def document(sentence: "Sentence", grid: "KvGrid | None", why: str) -> dict[str, Any]:
    from infer_console.planning.sentence_document import sentence_document

    return sentence_document(sentence, grid, why)


def print_sentence(sentence: "Sentence", grid: "KvGrid | None", why: str) -> None:
    from infer_console.cli.output import note, print_line, print_table

    print_line("")
    print_line(f"{sentence.text!r}: {len(sentence.words)} words")
    if grid is None:
        note(f"tokens are not known: {why}")
        return
    model, tokens = grid.deployment.model, sentence.tokens or ()
    print_table(
        ("token>", "id>", "block>", "slot>", "text", "word"),
        [
            (
                str(at + 1),
                str(each.id),
                str(at // grid.block_size),
                str(at % grid.block_size),
                "–" if each.text is None else f"'{each.text}'",
                sentence.words[each.word] if each.begins and each.word is not None else "",
            )
            for at, each in enumerate(tokens)
        ],
    )
    each, all_of_them = model.kv_bytes_per_token, grid.prompt * model.kv_bytes_per_token
    print_line(f"tokens of {sentence.tokenizer}; KV of {model.name}:")
    print_line(
        f"{grid.prompt} tokens × {grid.layers} layers × {model.kv_bytes_per_token_and_layer:,} B"
        f" = {grid.prompt} × {each:,} B = {all_of_them:,} B"
    )
    for number in range(1, grid.steps + 1):
        step = grid.step(number)
        print_line(
            f"decode {number}: token {step.column + 1} into block {step.block}; reads {step.weight_bytes:,} B"
            f" of weights + {step.kv_read_bytes:,} B of KV, floor {step.step_s * 1e3:.4g} ms"
        )
