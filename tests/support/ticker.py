"""A console whose pictures change all the time, on a thread of their own, and are counted in a file:
``python -m support.ticker FILE``."""

import dataclasses
import json
import sys
import threading
from pathlib import Path

import msgspec
from infer_console.state.picture import Picture
from infer_console.ui.display import Display
from infer_console.ui.leaving import TerminalGuard
from infer_engine.protocol import Alarm
from support import pictures
from support.demo import DemoApp
from support.fake_collector import FakeCollector

PERIOD_S = 0.1


class Ticker(FakeCollector):
    """Counts pictures and alarms in a file; the count of pictures is what the fleet says is running."""

    def __init__(self, report: Path) -> None:
        super().__init__(pictures.incident())
        self._report = report
        self._made = self._alarms = 0
        self._over = threading.Event()
        self._tell()

    def run(self) -> None:
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while not self._over.wait(PERIOD_S):
            self._made += 1
            self.show(self._next())
            self._tell()

    def _next(self) -> Picture:
        picture = pictures.incident()
        assert picture.totals is not None
        alarms = picture.alarms
        if self._made % 5 == 0:
            self._alarms += 1
            alarms = (*alarms, Alarm(rule=f"rule {self._made}", severity="critical", text="one more"))
        totals = msgspec.structs.replace(picture.totals, running=self._made)
        return dataclasses.replace(picture, totals=totals, alarms=alarms)

    def _tell(self) -> None:
        part = self._report.with_suffix(".part")
        part.write_text(json.dumps({"pictures": self._made, "alarms": self._alarms}), encoding="utf-8")
        part.replace(self._report)


def main(report: str) -> int:
    collector = Ticker(Path(report))
    with TerminalGuard() as guard:
        app = DemoApp(collector, theme="dark", guard=guard, display=Display(fps=10))
        collector.run()
        app.run(mouse=False)
    return app.return_code or 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
