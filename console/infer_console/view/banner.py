"""The first line: whose screen this is, how fresh it is, and what time it is."""

from infer_console.state.link import STALE_AFTER_S
from infer_console.state.picture import Link, Picture
from infer_console.terminal.safe_text import SafeText, fit_text, safe
from infer_console.view.format import age, clock
from infer_console.view.look import Look
from infer_console.view.people import also, lease, me
from infer_console.view.row import Line, Role, Row, Shown, Tone
from infer_console.view.scrubber import moment_word
from infer_console.view.simulated import simulated_mark
from infer_console.view.waiting import is_shed

#: Cells of a fleet's name that are shown at any rate.
LEAST_NAME = 6


def link_age_s(picture: Picture, now: float) -> float | None:
    """The age of the view, counting on where the collector itself has fallen silent."""
    if picture.link.age_s is None:
        return None
    return picture.link.age_s + max(0.0, now - picture.at)


def link_word(picture: Picture, now: float) -> tuple[SafeText, Role]:
    """``LIVE .2s`` or what else is the matter with the link, in words as well as in colour."""
    link: Link = picture.link
    seen_s = link_age_s(picture, now)
    if link.state == "live" and seen_s is not None and seen_s > STALE_AFTER_S:
        return safe(f"STALE {age(seen_s)}"), "warn"
    match link.state:
        case "live":
            return safe(f"LIVE {age(seen_s)}"), "ok"
        case "stale":
            return safe(f"STALE {age(seen_s)}"), "warn"
        case "lost":
            return safe(f"LOST {age(seen_s)}" if seen_s is not None else "LOST"), "crit"
        case "starting":
            return safe("STARTING"), "accent"
        case "connecting":
            return safe("CONNECTING"), "accent"


def actions_off(picture: Picture, look: Look, now: float) -> Shown:
    """Why action keys are off; empty where they are on."""
    if picture.read_only:
        return safe(_read_only(picture))
    if look.paused:
        if look.scrub is not None and not look.scrub.live:
            return "a recording: action keys off"
        past = look.scrub is not None and look.scrub.past
        return "the past: action keys off" if past else "paused: action keys off"
    if picture.link.state in ("starting", "connecting"):
        return "no engine yet: action keys off"
    if picture.link.state == "lost":
        return safe(f"no connection: {picture.link.message or 'trying again'}", 100)
    if picture.link.state == "stale" or (link_age_s(picture, now) or 0) > STALE_AFTER_S:
        return "stale view: only D and X act"
    return ""


def banner(picture: Picture, look: Look, width: int, now: float, where: SafeText | None = None) -> Row:
    """``where`` is the replica or screen after the fleet's name."""
    tone = bar_tone(picture)
    line = Line(width, tone).put(" ")
    fleet = picture.fleet
    for text, role in _environment(picture):
        line.put(text, role).put(" ")
    state = moment_word(look.scrub) if look.scrub is not None else link_word(picture, now)
    mark = simulated_mark(fleet) if fleet is not None else None
    # How fresh the view is has to be seen whole: where it is narrow, the name and how fast it runs give way.
    room = line.left - _cells([state]) - (len(where) + 3 if where is not None else 0)
    if mark is not None and len(mark) + 2 + LEAST_NAME > room:
        mark = safe(mark.split(",")[0])
    name = _name(picture, room - (len(mark) + 2 if mark is not None else 0))
    line.put(name, "strong")
    if where is not None:
        line.put(" › ", "dim").put(where, "strong")
    if mark is not None:
        line.put("  " if name or where is not None else "").put(mark, "warn")
    right: list[tuple[SafeText, Role]] = [state]
    if look.scrub is None:
        if look.pace is not None:
            right.append((_pace(look, width), "dim"))
        elif picture.link.bytes_per_s is not None and width >= 100:
            right.append((safe(f"{picture.link.bytes_per_s / 1000:.1f}KB/s"), "dim"))
    if look.scrub is None or not look.scrub.past:
        right.append((clock(now), "text"))
    elif (picture.link.age_s or 0.0) > STALE_AFTER_S:  # a gap: what is shown is from before it
        right.append((safe(f"NOTHING TOLD FOR {age(picture.link.age_s)}"), "crit"))
    while len(right) > 1 and line.used > width - _cells(right):  # they never run into what stands before them
        spared = next((each for each in right if each[1] == "dim"), right[-1])
        right.remove(spared)
    room = width - line.used - _cells(right) - 2
    for text, role in (*_first(picture, width), *_others(look), *_facts(picture, width)):
        if len(text) + 2 <= room:
            line.put("  ").put(text, role)
            room -= len(text) + 2
    line.to(width - _cells(right) + 1)
    for index, (text, role) in enumerate(right):
        line.put("  " if index else "").put(text, role)
    return line.row()


def _name(picture: Picture, room: int) -> SafeText:
    """The fleet's, cut to the room that there is; nothing where the operator's own name says it."""
    fleet = picture.fleet
    name = safe(fleet.name, 32) if fleet else safe(picture.link.url or "infer-console", 48)
    if picture.environment.name is not None and room < min(len(name), LEAST_NAME):
        return safe("")
    return fit_text(name, max(LEAST_NAME, room))


def bar_tone(picture: Picture) -> Tone:
    """The ground of the first and the last line: production is not to be mistaken for anything else."""
    return "production" if picture.environment.production else "bar"


def _environment(picture: Picture) -> list[tuple[SafeText, Role]]:
    """What the operator calls this server; PROD in words too, for terminals without colours."""
    named = picture.environment
    shown: list[tuple[SafeText, Role]] = [(safe(" PROD "), "strong")] if named.production else []
    if named.name is not None:
        shown.append((safe(named.name, 24), _COLOURS.get(named.colour or "", "accent")))
    return shown


#: Colours of the contexts file by roles, which every theme gives a shade that can be read.
_COLOURS: dict[str, Role] = {
    "red": "crit",
    "orange": "act",
    "yellow": "warn",
    "green": "ok",
    "cyan": "move",
    "blue": "owner0",
    "magenta": "evict",
}


def _others(look: Look) -> list[tuple[SafeText, Role]]:
    """``us-east 2▲``: the fleets that are not shown, those with critical alarms first."""
    shown: list[tuple[SafeText, Role]] = []
    for other in sorted(look.others, key=lambda each: (-each.critical, each.link == "live")):
        name = safe(other.name, 24)
        if other.link != "live":  # one that never answered is not to look like one that is well
            role: Role = "warn" if other.link in ("connecting", "starting") else "crit"
            shown.append((safe(f"{name} {other.link.upper()}"), role))
        else:
            alarms = f" {other.critical}▲" if other.critical else ""
            shown.append((safe(f"{name}{alarms}"), "crit" if alarms else "dim"))
    return shown


def _pace(look: Look, width: int) -> SafeText:
    """What the terminal is given: ``4Hz 3.1KB/s``, and frames left out because it was behind."""
    if look.pace is None:
        return safe("")
    hz, kilobytes = look.pace.hz, look.pace.bytes_per_s / 1000
    shown = f"{hz:.0f}Hz" if hz >= 0.95 else f"{hz:.1f}Hz"
    if width >= 100:
        shown += f" {kilobytes:.1f}KB/s"
        if look.skipped_frames:
            shown += f" skipped {look.skipped_frames}"
    return safe(shown)


def _read_only(picture: Picture) -> str:
    """By what the server is, by its word, or by our own option or context."""
    if "watched" in picture.capabilities:
        return "only watched"
    return f"read-only ({picture.role})" if picture.role in ("viewer", "content") else "read-only"


def _first(picture: Picture, width: int) -> list[tuple[SafeText, Role]]:
    """Before all other facts: why no key acts and who else may act now are not to be dropped for a model's
    name."""
    first: list[tuple[SafeText, Role]] = [(safe(_read_only(picture)), "warn")] if picture.read_only else []
    company = also(picture, width)
    return [*first, company] if company is not None else first


def _cells(right: list[tuple[SafeText, Role]]) -> int:
    """Those of the right end, with a space on either side."""
    return sum(len(text) + 2 for text, _ in right)


def _facts(picture: Picture, width: int) -> list[tuple[SafeText, Role]]:
    facts: list[tuple[SafeText, Role]] = []
    fleet = picture.fleet
    if fleet is not None:
        facts.append((safe(fleet.model, 40), "text"))
        if picture.totals is not None:
            was = "was " if picture.link.state == "lost" else ""
            facts.append((safe(f"{was}{picture.totals.ready}/{picture.totals.replicas} ready"), "dim"))
        you = me(picture)
        if you is not None and not picture.read_only:
            facts.append((you, "dim"))
        held = lease(fleet, width)
        if held is not None:
            facts.insert(0, held)
        if is_shed(picture):
            facts.insert(0, (safe("BATCH SHED"), "warn"))
    if picture.ahead_s:
        differs = "behind" if picture.ahead_s > 0 else "ahead"
        facts.insert(0, (safe(f"your clock {age(abs(picture.ahead_s))} {differs}"), "warn"))
    if picture.embedded:
        facts.append((safe("embedded engine"), "dim"))
    if "estimates" in picture.capabilities:
        unlike = " of unlike buckets" if "unlike_estimates" in picture.capabilities else ""
        facts.append((safe(f"percentiles est.{unlike}"), "dim"))
    if picture.link.reconnects and width >= 100:
        facts.append((safe(f"reconnects {picture.link.reconnects}"), "warn"))
    return facts
