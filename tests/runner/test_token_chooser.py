"""How rows of logits come from a device."""

import pytest
import torch
from infer_engine.model.sampling import Sampling
from infer_engine.runner.token_chooser import highest_and_rows, is_plain


@pytest.mark.parametrize("rows", [[], [2], [0, 3, 4]])
def test_one_transfer_brings_ids_and_rows(rows: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    logits = torch.randn(5, 1000)
    logits[3, 17:] = logits[3].max() + 1
    logits[4, 0] = -torch.inf
    transfers: list[torch.Tensor] = []
    monkeypatch.setattr(torch.Tensor, "cpu", lambda tensor: transfers.append(tensor) or tensor)  # pyright: ignore
    highest, here = highest_and_rows(logits, rows)
    assert len(transfers) == 1
    assert highest == logits.argmax(-1).tolist()
    assert torch.equal(here, logits[rows])


def test_plain_rows_need_nothing_but_the_highest() -> None:
    assert is_plain(None)
    assert is_plain(Sampling(temperature=0.0, top_k=3, seed=4))
    for one in (
        Sampling(),
        Sampling(temperature=0.0, logprobs=0),
        Sampling(temperature=0.0, repetition_penalty=1.1),
        Sampling(temperature=0.0, min_tokens=1),
    ):
        assert not is_plain(one)
