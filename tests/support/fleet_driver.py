"""Runs a fleet of real processes until it is killed; says ``up`` once it is there.

Usage: ``fleet_driver.py MODEL loading|ready``
"""

import asyncio
import sys

from infer_engine.fleet.fleet import Fleet
from infer_engine.settings import ReplicaSettings, ServerSettings


async def main(model: str, wanted: str) -> None:
    fleet = Fleet(ServerSettings(replicas=1, replica=ReplicaSettings(model=model, kv_blocks=16)))
    await fleet.start()
    try:
        async with asyncio.timeout(60):
            # Nothing wakes us here: the fleet is looked at from outside, as its users do.
            while fleet.replica("r0").pid is None or (wanted == "ready" and not fleet.ready):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            sys.stdout.write(f"up {fleet.run_dir}\n")
            sys.stdout.flush()
            await asyncio.sleep(60)
    finally:
        await fleet.stop()


asyncio.run(main(sys.argv[1], sys.argv[2]))
