"""The mark of a fleet that is simulated, wherever its figures are shown."""

from infer_engine.protocol import Fleet

from infer_console.terminal.safe_text import SafeText, safe

#: Slower than this share of the speed that was asked for is worth telling.
KEEPS_UP = 0.95


def simulated_mark(fleet: Fleet) -> SafeText | None:
    """``SIMULATED ×4``, and how fast it really goes where the machine cannot keep up; None where nothing is
    simulated."""
    if not fleet.simulated:
        return None
    simulation = fleet.simulation
    if simulation is None:
        return safe("SIMULATED")
    text = f"SIMULATED ×{simulation.speed:g}"
    achieved = simulation.achieved_speed
    if achieved is not None and achieved < KEEPS_UP * simulation.speed:
        text += f", runs ×{achieved:.2g}"
    return safe(text)
