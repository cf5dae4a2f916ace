"""The Traffic screen: what the console injects and what that does."""

from infer_console.state.picture import Picture
from infer_console.terminal.safe_text import SafeText, safe
from infer_console.view.banner import banner
from infer_console.view.frame import bottom_row, start_rows, whole
from infer_console.view.history import history_section
from infer_console.view.layout import rule
from infer_console.view.look import Look, Size
from infer_console.view.row import Row, beside
from infer_console.view.scrubber import until
from infer_console.view.traffic_rows import effect_section, profile_rows, rails_section, sent_section
from infer_console.view.vital import fleet_vitals, vital_row
from infer_console.view.watched import fleet_needs, is_watched

#: From this width on, effect and guard rails stand beside each other.
TWO_FROM = 160
#: Curves of the history, beside its title and its axis.
_FEWEST_CURVES, _MOST_CURVES = 2, 6


def traffic_screen(
    picture: Picture, look: Look, size: Size, now: float, notice: SafeText | None = None
) -> list[Row]:
    """Exactly ``size.height`` rows of ``size.width`` cells."""
    width, height = size
    top = [banner(picture, look, width, now, safe("traffic"))]
    bottom = [bottom_row(picture, look, "traffic", width, now, notice)]
    if picture.totals is None or picture.fleet is None:
        return whole(top, start_rows(picture, width, height - 2), bottom, width, height)
    top.append(vital_row(fleet_vitals(picture), width))
    if is_watched(picture):
        rows = [
            rule(width, "TEST TRAFFIC"),
            *fleet_needs("a server that is only watched takes no test traffic", picture, width),
        ]
        rows += history_section(
            picture, width, max(0, height - 3 - len(rows)), tall=True, until=until(look.scrub)
        )
        return whole(top, rows, bottom, width, height)
    traffic = picture.fleet.traffic
    body = sent_section(picture, traffic, width, now)
    if traffic.profile is None:
        body += rails_section(traffic, width)
        body += profile_rows(width, height)
    elif width >= TWO_FROM:
        half = width // 2
        body += beside(effect_section(traffic, half), rails_section(traffic, width - half - 2), half, width)
    else:
        body += effect_section(traffic, width) + rails_section(traffic, width)
    left = height - 3 - len(body)
    if left > _FEWEST_CURVES:
        # Its axis marks when the traffic began.
        profiles = len(profile_rows(width, height)) if traffic.profile is not None else 0
        room = max(min(left, _MOST_CURVES + 2), left - profiles)
        body += history_section(picture, width, room, tall=True, until=until(look.scrub))
    if traffic.profile is not None:
        body += profile_rows(width, height - 3 - len(body))
    return whole(top, body, bottom, width, height)
