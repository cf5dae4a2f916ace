"""The gateway's bounds; not (yet) for operators to set."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    #: Largest request body, counted while it is received.
    max_body_bytes: int = 4 * 1024 * 1024
    #: Bodies being received at one moment, all requests together.
    max_bodies_bytes: int = 128 * 1024 * 1024
    #: How much of a refused body is still taken in, so that its sender reads the refusal.
    max_drained_bytes: int = 16 * 1024 * 1024
    #: From a request's head to the end of its body.
    body_deadline_s: float = 30.0
    max_messages: int = 1024
    max_stops: int = 16
    max_stop_chars: int = 256
    max_stop_token_ids: int = 64
    #: Choices of one request, and the tokens that they may have together.
    max_choices: int = 8
    max_choices_tokens: int = 65_536
    #: Logprobs that one request may have kept for it: choices x tokens x (alternatives + 1).
    max_logprobs: int = 262_144
    #: How long a constraint may take to compile, and how many may wait for that.
    constraint_deadline_s: float = 5.0
    max_constraints_waiting: int = 16
    #: A streamed answer whose first token takes longer than this starts without it, so that a refusal can
    #: still be a real status and a long queue still is an open stream.
    patience_s: float = 1.0
    #: Silence on a stream after which a comment line is sent.
    ping_s: float = 15.0
    #: How long a client may take no bytes before its connection is cut.
    send_timeout_s: float = 10.0
    #: Prompts tokenized at once in threads, and how many more may wait for that.
    tokenizer_threads: int = 2
    max_tokenizer_waiting: int = 64
