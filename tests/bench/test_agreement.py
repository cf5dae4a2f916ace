"""When figures of a minute agree, and when they do not."""

from dataclasses import replace
from pathlib import Path

from peers.agreement import Minute, Row, Seen, rows, table
from peers.witnesses import MINUTE_S, Sample, log_samples
from record_pages import kept

BOUNDS = {"ttft": [0.5, 1.0, 2.5, float("inf")], "itl": [0.05, 0.1, 0.2, float("inf")]}


def sample(at: float, running: float = 4.0, tokens_per_s: float = 20.0, ttft_p95: float = 0.9) -> Sample:
    return Sample(
        at=at,
        running=running,
        waiting=2.0,
        kv_percent=30.0,
        tokens_per_s=tokens_per_s,
        ttft_s={0.50: 0.7, 0.95: ttft_p95, 0.99: 0.95},
        itl_s={0.50: 0.07, 0.95: 0.09, 0.99: 0.1},
    )


def a_minute() -> Minute:
    seen = Seen(tokens_per_s=20.0, ttft_s=[0.6, 0.7, 0.8], gaps_s=[0.06, 0.07, 0.08], mean_gaps_s=[0.07])
    tens = [sample(10.0 * number) for number in range(13)]
    return Minute(
        ours=[sample(float(second)) for second in range(121)],
        htop=[replace(each, ttft_s={0.95: 0.9}) for each in tens],
        log=tens,
        clients=seen,
        bounds=BOUNDS,
    )


def disagreeing(minute: Minute) -> set[str]:
    return {row.figure for row in rows(minute) if not row.agrees}


def test_the_same_told_by_all_agrees() -> None:
    assert disagreeing(a_minute()) == set()
    assert "| running | 4.00 | 4.00 ± 0.050 | 4.00 ± 0.050 | – | yes |" in table(rows(a_minute()))


def test_what_one_of_them_tells_otherwise_is_found() -> None:
    minute = a_minute()
    assert disagreeing(replace(minute, htop=[replace(each, running=3.0) for each in minute.htop])) == {
        "running"
    }
    faster = replace(minute.clients, tokens_per_s=22.0)
    assert disagreeing(replace(minute, clients=faster)) == {"tokens/s"}
    slower = replace(minute.clients, gaps_s=[0.3, 0.3, 0.3])
    assert disagreeing(replace(minute, clients=slower)) == {"ITL p50, s", "ITL p95, s", "ITL p99, s"}


def test_who_tells_nothing_does_not_agree() -> None:
    minute = a_minute()
    assert "tokens/s" in disagreeing(replace(minute, log=[]))
    silent = [replace(each, running=None) for each in minute.ours]
    assert "running" in disagreeing(replace(minute, ours=silent))


def test_what_was_before_the_minute_does_not_count() -> None:
    minute = a_minute()
    warm_up = [
        replace(each, running=0.0) if each.at <= minute.end_at - MINUTE_S else each for each in minute.ours
    ]
    found: list[Row] = rows(replace(minute, ours=warm_up))
    assert found[0].ours == 4.0


def test_a_line_of_vllms_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        "(APIServer pid=1) INFO 11-30 12:23:14 [loggers.py:335] Engine 000: Avg prompt throughput: 130.5 "
        "tokens/s, Avg generation throughput: 31.6 tokens/s, Running: 4 reqs, Waiting: 2 reqs, "
        "CPU KV cache usage: 31.9%, Prefix cache hit rate: 0.0%\n(APIServer pid=1) INFO something else\n"
    )
    (found,) = log_samples(log)
    assert (found.tokens_per_s, found.running, found.waiting, found.kv_percent) == (31.6, 4.0, 2.0, 31.9)


def test_pages_keep_what_the_server_tells_of_itself() -> None:
    page = (
        b"# HELP vllm:x what it is\n# TYPE vllm:x gauge\nvllm:x 1.0\n# TYPE vllm:x_created gauge\n"
        b"vllm:x_created 1.7e9\npython_info 1.0\nprocess_start_time_seconds 5.0\n"
    )
    assert kept(page) == b"# TYPE vllm:x gauge\nvllm:x 1.0\nprocess_start_time_seconds 5.0\n"
