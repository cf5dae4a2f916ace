"""Who sends requests: with deadlines, as several choices, some of whom leave; and what each must have got."""

import asyncio
from dataclasses import dataclass, field
from random import Random

from infer_engine.fleet.fleet import Fleet
from infer_engine.fleet.generation import Generation, GenerationSpec, Refusal
from infer_engine.model.sampling import Sampling
from simulation.fleet.tally import FleetTally
from simulation.fleet.words import answer

#: Codes with which a request may be turned away at the door.
AT_THE_DOOR = frozenset(
    {
        "queue_full",
        "tenant_rate",
        "tenant_prompt_too_long",
        "no_ready_replica",
        "draining",
        "never_fits",
        "deadline_unreachable",
    }
)


@dataclass(eq=False)
class Client:
    generation: Generation
    expected: list[int]
    stops: bool
    read: list[int] = field(default_factory=list[int])
    left: bool = False
    ends: int = 0


class Clients:
    """``run`` sends requests for so long; ``check_all`` wants all of them to have ended rightly."""

    def __init__(self, random: Random, tally: FleetTally) -> None:
        self.random = random
        self.tally = tally
        self.all: dict[str, Client] = {}
        self._readers: set[asyncio.Task[None]] = set()

    async def run(self, fleet: Fleet, for_s: float, count: int, most_tokens: int) -> None:
        fleet.on_finish(lambda generation: self._ended(fleet, generation))
        draw = self.random
        moments = sorted(draw.uniform(0.0, for_s) for _ in range(count))
        began_s = fleet.now()
        for moment in moments:
            await asyncio.sleep(max(0.0, began_s + moment - fleet.now()))
            self._send(fleet, most_tokens)

    def _send(self, fleet: Fleet, most_tokens: int) -> None:
        draw = self.random
        begin = draw.choice([(), (1, 2, 3, 4), (1, 2, 3, 4, 5, 6, 7, 8)])
        prompt = (*begin, *(draw.randrange(1, 50_000) for _ in range(draw.choice([1, 3, 9, 24]))))
        most = draw.choice([1, 4, 12, most_tokens])
        expected, stops = answer(prompt, most), False
        stop_token_ids: tuple[int, ...] = ()
        if draw.random() < 0.2:
            stop = draw.choice(expected)
            stop_token_ids, stops = (stop,), True
            expected = expected[: expected.index(stop) + 1]
        spec = GenerationSpec(
            prompt=prompt,
            max_tokens=most,
            sampling=Sampling(),
            stop_token_ids=stop_token_ids,
            tenant=draw.choice(["red", "blue", "blue"]),
            tier=draw.choice(["interactive", "interactive", "batch"]),
            priority=draw.choice([0, 0, 5]),
            streams=draw.random() < 0.6,
            deadline_s=draw.choice([0.5, 3.0, 8.0]) if draw.random() < 0.25 else None,
        )
        self.tally.requests += 1
        try:
            choices = draw.choice([1, 1, 1, 1, 3])
            made = fleet.submit_choices([spec] * choices) if choices > 1 else [fleet.submit(spec)]
        except Refusal as refusal:
            code = refusal.problem.code
            assert code in AT_THE_DOOR, f"a request was refused with {code}"
            assert code != "deadline_unreachable" or spec.deadline_s is not None
            self.tally.refused[code] += 1
            return
        for generation in made:
            client = self.all[generation.id] = Client(generation, expected, stops)
            if spec.streams and draw.random() < 0.7:
                leaves_s = draw.uniform(0.0, 8.0) if draw.random() < 0.3 else None
                reader = asyncio.create_task(self._read(fleet, client, leaves_s))
                self._readers.add(reader)
                reader.add_done_callback(self._readers.discard)

    async def _read(self, fleet: Fleet, client: Client, leaves_s: float | None) -> None:
        """As a stream does; ``leaves_s`` from now it closes its connection."""
        generation = client.generation
        end_s = None if leaves_s is None else fleet.now() + leaves_s
        while not generation.finished:
            left_s = 600.0 if end_s is None else end_s - fleet.now()
            if left_s <= 0:
                client.left = fleet.cancel(generation.id, code="client_disconnected")
                self.tally.left += client.left
                return
            await generation.beyond(len(client.read), left_s)
            client.read += generation.emitted[len(client.read) :]

    def _ended(self, fleet: Fleet, generation: Generation) -> None:
        """Just after it did: what may only be so in this moment."""
        client = self.all.get(generation.id)
        if client is None:  # one of several choices, of which a later one was refused
            return
        client.ends += 1
        self.tally.finished[generation.error_code or str(generation.finish_reason)] += 1
        self.tally.moves += generation.moves
        match generation.error_code:
            case "deadline_exceeded":
                left_s = generation.left_s(fleet.now())
                assert left_s is not None, f"{generation.id} had no deadline"
                assert left_s <= 1e-6, f"{generation.id} ended {left_s:.3f} s before its deadline"
            case "no_ready_replica":
                states = {each.state for each in fleet.members.handles.values()}
                hopeful = states & {"starting", "restarting", "ready", "draining", "drained"}
                assert not hopeful, f"{generation.id} was given up while replicas were {hopeful}"
            case "replica_suspect":
                assert generation.emitted, f"{generation.id} had emitted nothing and was not restarted"
                assert generation.spec.streams, f"nothing of {generation.id} was sent, it was not restarted"
            case _:
                pass

    def unfinished(self) -> list[str]:
        return [client.generation.id for client in self.all.values() if not client.generation.finished]

    async def read_out(self) -> None:
        if self._readers:
            await asyncio.wait(self._readers, timeout=1_000.0)

    def check_all(self) -> None:
        for client in self.all.values():
            _check(client)


#: How a request may end without being complete; what else has to be so is looked at when it ends.
ENDS = frozenset(
    {
        "deadline_exceeded",
        "no_ready_replica",
        "replica_suspect",
        "replica_lost",
        "queue_full",
        "admission_closed",
        "cancelled_by_operator",
        "client_disconnected",
        "replica_draining",
        "choice_refused",
        "shutting_down",
    }
)


def _check(client: Client) -> None:
    generation, expected = client.generation, client.expected
    name, emitted = generation.id, generation.emitted
    assert generation.finished, f"{name} never ended"
    assert client.ends == 1, f"{name} ended {client.ends} times"
    assert emitted == expected[: len(emitted)], f"{name} emitted {emitted}, not {expected}"
    assert client.read == emitted[: len(client.read)], f"{name}: its client read {client.read}"
    if generation.finish_reason in ("length", "stop"):
        assert generation.finish_reason == ("stop" if client.stops else "length")
        assert len(emitted) == len(expected), f"{name} ended with {len(emitted)} of {len(expected)} tokens"
        return
    assert generation.error_code in ENDS, f"{name} ended with {generation.error_code}: {generation.error}"
    if generation.error_code == "client_disconnected":
        assert client.left, f"{name} was cancelled and its client was still there"
