"""Command bodies: what fits passes, what does not is refused by its field's name, and nothing crashes."""

import pytest
from infer_engine.control.decode import decode
from infer_engine.fleet.generation import Refusal
from infer_engine.protocol import Cancel, Command, Drain, Inject, SetHeadroom, Undrain


def test_an_empty_body_is_a_command_with_defaults() -> None:
    assert decode(Drain, b"") == Drain()


def test_a_command_is_read() -> None:
    assert decode(SetHeadroom, b'{"percent": 20, "replica": "r0"}') == SetHeadroom(percent=20.0, replica="r0")


@pytest.mark.parametrize(
    ("kind", "body", "field"),
    [
        (Drain, b'{"deadline_s": -1}', "deadline_s"),
        (Drain, b'{"deadline_s": 3601}', "deadline_s"),
        (Drain, b'{"deadline_s": "soon"}', "deadline_s"),
        (Drain, b'{"mode": "fast"}', "mode"),
        (Drain, b'{"on_deadline": "requeue"}', "on_deadline"),
        (Drain, b'{"surprise": 1}', "surprise"),
        (Drain, b'{"force": 1}', "force"),
        (Undrain, b'{"reason": "' + b"x" * 257 + b'"}', "reason"),
        (Cancel, b'{"actor": "a\\u001b[31m"}', "actor"),
        (Cancel, b'{"actor": "' + b"x" * 65 + b'"}', "actor"),
        (SetHeadroom, b"{}", "percent"),
        (SetHeadroom, b'{"percent": 10, "blocks": 3}', "percent"),
        (SetHeadroom, b'{"percent": 100.5}', "percent"),
        (SetHeadroom, b'{"blocks": -1}', "blocks"),
        (SetHeadroom, b'{"blocks": 1.5}', "blocks"),
        (SetHeadroom, b'{"blocks": 1, "revert_after_s": 0}', "revert_after_s"),
        (SetHeadroom, b'{"blocks": 1, "tier": "vip"}', "tier"),
        (Inject, b'{"rate_per_s": 0}', "rate_per_s"),
        (Inject, b'{"rate_per_s": 501}', "rate_per_s"),
        (Inject, b'{"duration_s": 601}', "duration_s"),
        (Inject, b'{"duration_s": 0}', "duration_s"),
    ],
)
def test_what_does_not_fit_is_named(kind: type[Command], body: bytes, field: str) -> None:
    with pytest.raises(Refusal) as refused:
        decode(kind, body)
    problem = refused.value.problem
    assert (problem.status, problem.code, problem.field) == (422, "invalid_field", field)


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"nonsense",
        b'{"deadline_s": NaN}',
        b'{"deadline_s": Infinity}',
        b'{"reason": "\\ud800"}',
        b'{"reason": "\xff"}',
        b"[" * 32_000,
        b'{"a":' * 10_000,
        b"\x00",
    ],
)
def test_what_is_no_json_is_refused(body: bytes) -> None:
    with pytest.raises(Refusal) as refused:
        decode(Drain, body)
    assert refused.value.problem.status in (400, 422)


@pytest.mark.parametrize("body", [b"[]", b"null", b"3", b'"drain"'])
def test_what_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(Refusal) as refused:
        decode(Drain, body)
    assert refused.value.problem.status == 422


def test_numbers_too_large_are_refused() -> None:
    with pytest.raises(Refusal) as refused:
        decode(Drain, b'{"deadline_s": 1e999}')
    assert refused.value.problem.status in (400, 422)


def test_a_mode_that_does_not_exist_is_refused() -> None:
    with pytest.raises(Refusal) as refused:
        decode(Drain, b'{"mode": "swap"}')
    assert (refused.value.problem.status, refused.value.problem.code) == (422, "invalid_field")


@pytest.mark.parametrize(
    ("kind", "field"), [(SetHeadroom, "percent"), (Drain, "deadline_s"), (Inject, "rate_per_s")]
)
def test_a_number_too_large_to_be_one_is_named(kind: type[Command], field: str) -> None:
    with pytest.raises(Refusal) as refused:
        decode(kind, b'{"reason": "x", "%s": 1e999}' % field.encode())
    problem = refused.value.problem
    assert (problem.status, problem.code, problem.field) == (422, "invalid_field", field)
