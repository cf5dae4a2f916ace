"""A recorded trace: what is read, and what is said of what cannot be."""

import pytest
from infer_console.actions.trace_file import MOST_REQUESTS, TraceError, read_trace
from infer_engine.protocol import TraceRequest

WANTED = [
    TraceRequest(arrival_s=0.0, prompt_tokens=20, output_tokens=3),
    TraceRequest(arrival_s=1.5, prompt_tokens=100_000, output_tokens=64, tier="batch"),
]


def test_json_lines_in_any_order() -> None:
    assert (
        read_trace(
            '{"arrival_s": 1.5, "prompt_tokens": 100000, "output_tokens": 64, "tier": "batch", "more": 1}\n'
            '\n{"arrival_s": 0, "prompt_tokens": 20, "output_tokens": 3}\n'
        )
        == WANTED
    )


def test_csv_with_or_without_tiers() -> None:
    head = "\ufeffprompt_tokens, arrival_s, output_tokens, tier\r\n"
    assert read_trace(f"{head}20,0,3,\r\n100000,1.5,64,batch\r\n") == WANTED
    assert read_trace("arrival_s,prompt_tokens,output_tokens\n0,20,3\n") == WANTED[:1]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the header has no arrival_s"),
        ("arrival_s,prompt_tokens,output_tokens\n", "no request is in it"),
        ("arrival_s,prompt_tokens\n1,2\n", "the header has no output_tokens"),
        ('{"arrival_s": 0', "line 1 is no JSON"),
        ('{"arrival_s": 0, "prompt_tokens": 5, "output_tokens": 1}\n[1]', "line 2 is no JSON object"),
        ('{"arrival_s": 0, "prompt_tokens": 5}', "line 1: output_tokens: nothing was given"),
        ('{"arrival_s": 1e999, "prompt_tokens": 5, "output_tokens": 1}', "line 1: arrival_s: 'inf'"),
        ('{"arrival_s": true, "prompt_tokens": 5, "output_tokens": 1}', "line 1: arrival_s: 'True'"),
        ("arrival_s,prompt_tokens,output_tokens\n-1,5,1\n", "line 2: arrival_s: '-1' was given"),
        ("arrival_s,prompt_tokens,output_tokens\n1,5.5,1\n", "line 2: prompt_tokens: 5.5 was given"),
        ("arrival_s,prompt_tokens,output_tokens,tier\n1,5,1,vip\n", "line 2: tier: 'vip' was given"),
        ("arrival_s,prompt_tokens,output_tokens\n" + "1,5,1\n" * (MOST_REQUESTS + 1), "at most 10000"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(text: str, said: str) -> None:
    with pytest.raises(TraceError) as refused:
        read_trace(text)
    assert said in str(refused.value)
