"""64 prompts of the real default model, greedy and in fp32: whatever way they are computed, the tokens are
those of Hugging Face transformers (see tests/model/make_expected_ids.py). ``make parity`` does the same for
64 tokens of each."""

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from parity.compare import TIE, cases, differences
from parity.modes import MODES
from parity.run_modes import SHARES

SCRIPT = Path(__file__).with_name("run_modes.py")
TOKENS = 10
#: Alone a token takes as long as in a batch those of all.
TOKENS_ALONE = 3
MOST_TIES = 2
TIMEOUT_S = 900.0


@pytest.mark.model
@pytest.mark.apart
@pytest.mark.timeout(TIMEOUT_S + 30)
def test_sixty_four_prompts_give_the_same_tokens_in_every_mode(capsys: pytest.CaptureFixture[str]) -> None:
    outputs = {line["mode"]: line["outputs"] for line in run_all_modes()}
    assert outputs.keys() == MODES.keys()
    known = cases()
    assert len(known) == 64
    ties = {}
    for mode, of_mode in outputs.items():
        wanted = TOKENS_ALONE if mode == "alone" else TOKENS
        assert [len(output) for output in of_mode] == [wanted] * 64, mode
        found = differences(of_mode, known)
        wrong = [str(each) for each in found if each.gap >= TIE]
        assert not wrong, f"{mode}: {wrong}"
        ties[mode] = len(found)
    with capsys.disabled():
        print(f"\nparity: 64 prompts, {TOKENS} tokens ({TOKENS_ALONE} alone); ties by mode: {ties}")
    assert max(ties.values()) <= MOST_TIES


def run_all_modes() -> list[dict]:
    """Two processes with one compute thread each: they share the cores better than one with two."""
    command = [sys.executable, str(SCRIPT), "--json", "--tokens", str(TOKENS)]
    command += ["--tokens-alone", str(TOKENS_ALONE), "--threads", "1", "--share"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    with ExitStack() as stack:
        processes = [
            stack.enter_context(
                subprocess.Popen([*command, str(share)], stdout=subprocess.PIPE, text=True, env=environment)
            )
            for share in range(len(SHARES))
        ]
        try:
            printed = [process.communicate(timeout=TIMEOUT_S)[0] for process in processes]
            assert [process.returncode for process in processes] == [0] * len(processes)
        finally:
            for process in processes:
                process.kill()
    return [json.loads(line) for text in printed for line in text.splitlines()]
