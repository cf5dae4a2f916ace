"""The committed workload is what its seed gives, and as it is described."""

import workload as generator
from infer_engine.benchmark.workload import lengths, text, workload


def test_the_committed_lengths_are_those_of_the_seed() -> None:
    made = [
        (each["prompt_tokens"], each["output_tokens"], each["arrival_s"]) for each in generator.requests()
    ]
    assert made == lengths()
    assert generator.requests(seed=1) != generator.requests()


def test_sixteen_requests_from_the_shortest_to_the_longest() -> None:
    prompts, outputs, arrivals = zip(*lengths(), strict=True)
    assert len(prompts) == 16
    assert (min(prompts), max(prompts)) == (16, 256)
    assert (min(outputs), max(outputs)) == (16, 400)
    assert list(arrivals) == sorted(arrivals)


def test_every_prompt_has_its_length_and_no_repeat_begins_like_another() -> None:
    beginnings: set[tuple[int, ...]] = set()
    for repeat in range(10):
        asks = workload(repeat)
        assert [(len(ask.prompt), ask.output_tokens, ask.arrival_s) for ask in asks] == lengths()
        beginnings |= {ask.prompt[:16] for ask in asks}
    assert len(beginnings) == 160


def test_the_text_begins_anew_at_its_end_and_folds_into_a_small_vocabulary() -> None:
    size = generator.TEXT_TOKENS
    assert text(size - 1, 3) == (text(size - 1, 1) + text(0, 2))
    assert max(text(0, size, vocabulary=50)) < 50
