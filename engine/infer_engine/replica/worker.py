"""A replica process: ``python -m infer_engine.replica.worker``.

Its configuration is the first line on stdin; the pipe then stays open as its lifeline. It talks to the
server over the endpoint named there, loads the model and runs the step loop until it is told to stop.
"""

import logging
import os
import signal
import sys
import time
from types import FrameType

import msgspec

from infer_engine.core.blocks import BlockPool
from infer_engine.core.limits import Limits, LimitsError
from infer_engine.core.scheduler import Scheduler
from infer_engine.core.swap import HostPool, SwapCost
from infer_engine.model.errors import ModelError
from infer_engine.replica import lifeline
from infer_engine.replica.dealer import Dealer
from infer_engine.replica.limits_at_start import starting_limits
from infer_engine.replica.link_watch import LinkLostError
from infer_engine.replica.messages import Failed, Loading, Ready, ReplicaConfig, Started
from infer_engine.replica.step_loop import StepLoop
from infer_engine.replica.wire import LINK_LOST, WILL_FAIL_AGAIN, identity
from infer_engine.runner.rates import measured
from infer_engine.runner.runner import Runner, RunnerInfo
from infer_engine.settings import ReplicaSettings
from infer_engine.telemetry.logs import configure_logging

log = logging.getLogger(__name__)

STDIN = 0
#: Progress reports are sent this far apart, whatever a loader calls with.
PROGRESS_PERIOD_S = 0.1
#: Where nothing was measured.
USUAL_PREFILL_TOKENS_PER_S = 1000.0
USUAL_SWAP_BYTES_PER_S = 4e9


class Stopped(SystemExit):
    """SIGTERM came while there was no step loop yet to be told."""


class Worker:
    def __init__(self, config: ReplicaConfig) -> None:
        self._config = config
        self._link = Dealer(config.endpoint, identity(config.replica, config.incarnation), config.keys)
        self._loop: StepLoop | None = None
        self._progress_s = 0.0

    def run(self) -> int:
        """The exit code: 0 when it was told to stop, 1 when it failed (and has said why), WILL_FAIL_AGAIN
        when starting it again would not help, LINK_LOST when the server is out of reach."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._on_sigterm)
        lifeline.hold(STDIN, self._stop_stepping)
        incarnation = self._config.incarnation
        try:
            self._link.send(Started(replica=self._config.replica, incarnation=incarnation, pid=os.getpid()))
            self._serve()
        except Stopped:
            return 0
        except LinkLostError as error:
            log.warning("%s", error)
            return LINK_LOST
        except (ModelError, LimitsError) as error:
            self._link.send(Failed(incarnation=incarnation, error=str(error)))
            return WILL_FAIL_AGAIN
        except Exception as error:
            log.exception("the replica failed")
            self._link.send(Failed(incarnation=incarnation, error=f"{type(error).__name__}: {error}"))
            return 1
        finally:
            self._link.close()
        return 0

    def _serve(self) -> None:
        # Loading pulls in torch: seconds in which the server already knows that the process lives.
        from infer_engine.runner.load import load_runner

        runner = load_runner(self._config.settings, self._progress)
        try:
            info = self._measured(runner)
            loop = self._make_loop(runner, info)
            self._link.send(ready(self._config.incarnation, info, loop.scheduler.limits))
            self._loop = loop
            loop.run()
        finally:
            runner.close()

    def _measured(self, runner: Runner) -> RunnerInfo:
        """What preemption costs here, where that is what decides and nobody has said it."""
        settings = self._config.settings
        known = settings.recompute_tokens_per_s is not None and settings.swap_bytes_per_s is not None
        if settings.preempt_mode != "auto" or not runner.info.host_blocks or known:
            return runner.info
        return measured(runner, time.perf_counter)

    def _make_loop(self, runner: Runner, info: RunnerInfo) -> StepLoop:
        return StepLoop(
            incarnation=self._config.incarnation,
            scheduler=make_scheduler(self._config.settings, info),
            runner=runner,
            link=self._link,
            clock=time.monotonic,
        )

    def _progress(self, progress: float, what: str) -> None:
        now_s = time.monotonic()
        if now_s - self._progress_s < PROGRESS_PERIOD_S and progress < 1.0:
            return
        self._progress_s = now_s
        self._link.offer(Loading(incarnation=self._config.incarnation, progress=progress, what=what))

    def _stop_stepping(self) -> None:
        if self._loop is not None:
            self._loop.stopping = True

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        if self._loop is None:
            raise Stopped(0)
        self._loop.stopping = True


def make_scheduler(settings: ReplicaSettings, info: RunnerInfo) -> Scheduler:
    """For the pool that the runner has. LimitsError when the settings do not go together."""
    return Scheduler(
        BlockPool(info.kv_blocks, info.block_size, prefix_cache=settings.prefix_cache),
        starting_limits(settings, info),
        info.context_length,
        host_pool(settings, info),
    )


def ready(incarnation: int, info: RunnerInfo, limits: Limits) -> Ready:
    """What a replica says once it has loaded."""
    return Ready(
        incarnation=incarnation,
        info=info,
        admit_limit=limits.admit_limit,
        batch_limit=limits.batch_limit,
        max_running=limits.max_running,
        token_budget=limits.token_budget,
        limits=limits.by_name(),
    )


def host_pool(settings: ReplicaSettings, info: RunnerInfo) -> HostPool:
    """Where the preempted go, with what it costs to go there and back: as the settings say, as it was
    measured, or what is usual."""
    block_bytes = info.kv_bytes_per_token * info.block_size
    swap_bytes_per_s = settings.swap_bytes_per_s or info.swap_bytes_per_s or USUAL_SWAP_BYTES_PER_S
    tokens_per_s = settings.recompute_tokens_per_s or info.prefill_tokens_per_s or USUAL_PREFILL_TOKENS_PER_S
    cost = SwapCost(block_s=2 * block_bytes / swap_bytes_per_s, token_s=1 / tokens_per_s)
    return HostPool(info.host_blocks, settings.preempt_mode, cost)


def main() -> int:
    configure_logging(logging.WARNING)
    try:
        config = msgspec.json.decode(lifeline.read_line(STDIN), type=ReplicaConfig)
    except (ValueError, msgspec.DecodeError) as error:
        log.error("no usable configuration: %s", error)
        return 2
    return Worker(config).run()


if __name__ == "__main__":
    sys.exit(main())
