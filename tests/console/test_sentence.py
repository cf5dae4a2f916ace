"""The operator's sentence through the real console on a real engine, by its own tokenizer."""

from infer_console.collector import Collector
from infer_console.connect import parse_url
from infer_console.ui.app import ConsoleApp
from infer_console.ui.screens.base import PaintedScreen
from infer_console.ui.themes import DEFAULT
from infer_engine.model.tokenizer import Tokenizer
from support.eventually import eventually
from support.pilot import Driven
from support.server import EngineServer
from support.tiny_model import write_tiny_gguf

SENTENCE = "in the hall"


def test_the_tokens_are_the_engines(engine: EngineServer) -> None:
    tokenizer = Tokenizer.from_file(write_tiny_gguf(engine.directory / "again.gguf"))
    collector = Collector(parse_url(engine.control_url))
    collector.start()
    try:
        collector.watch_sentence(SENTENCE)
        found = eventually(lambda: (shown := collector.picture.sentence) and shown.tokenized)
        assert [each.id for each in found.tokens] == tokenizer.encode(SENTENCE)
        collector.watch_sentence(None)
        eventually(lambda: collector.picture.sentence is None)
    finally:
        assert collector.stop(60)


async def test_it_is_typed_and_its_grid_is_shown(engine: EngineServer) -> None:
    tokenizer = Tokenizer.from_file(write_tiny_gguf(engine.directory / "again.gguf"))
    ids = tokenizer.encode(SENTENCE)
    collector = Collector(parse_url(engine.control_url))
    collector.start()
    try:
        app = ConsoleApp(collector, theme=DEFAULT)
        async with app.run_test(size=(120, 36)) as pilot:
            driven = Driven(app, collector, pilot)  # pyright: ignore[reportArgumentType]
            await driven.wait(
                "a frame", lambda: isinstance(app.screen, PaintedScreen) and driven.text.strip()
            )
            await driven.wait_for("r0")
            await driven.press("7", "v")
            await driven.type(SENTENCE)
            await driven.press("enter")
            await driven.wait_for(f"3 words → {len(ids)} tokens → {len(ids)} ids")
            shown = next(line for line in driven.lines if line.startswith(" ids "))
            assert [int(each) for each in shown.replace("│", " ").split()[1:]] == ids
            before = driven.text.count("▓")
            await driven.press("plus")
            await driven.wait("a column more", lambda: driven.text.count("▓") > before)
    finally:
        assert collector.stop(60)
