"""What callers may be allowed to do: four roles, each with all that those before it may."""

from typing import get_args

from infer_engine.protocol import Role

#: In rising order.
ROLES: tuple[Role, ...] = get_args(Role)

#: Other spellings that are understood where a person writes a role.
_SPELLINGS: dict[str, Role] = {"viewer+content": "content"}


def may(role: Role | None, permission: Role) -> bool:
    """Deny unless the role is known and at least ``permission``."""
    return role in ROLES and permission in ROLES and ROLES.index(role) >= ROLES.index(permission)


def parse_role(text: str) -> Role:
    """The role of that name; ValueError, with what is allowed, for anything else."""
    for role in ROLES:
        if text == role:
            return role
    if text in _SPELLINGS:
        return _SPELLINGS[text]
    allowed = ", ".join((*ROLES, *_SPELLINGS))
    raise ValueError(f"expected one of {allowed}, got {ascii(text)[:40]}")
