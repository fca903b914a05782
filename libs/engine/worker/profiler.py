"""Answers `profile`: where the time of this worker's steps went during the next moments."""

import asyncio
import time

from libs.contracts import codec, flow
from libs.contracts.messages import Lap, ProfileQuery, WorkerProfile
from libs.engine.worker.laps import Laps, Profile
from libs.engine.worker.step_thread import StepThread
from libs.runtime.bus import Bus, Subscription

MOST_MS = 600_000


class Profiler:
    """One profile at a time: who asks meanwhile waits for its own."""

    def __init__(self, worker: str, steps: StepThread, laps: Laps) -> None:
        self._worker, self._steps, self._laps = worker, steps, laps
        self._turn = asyncio.Lock()

    async def serve(self, bus: Bus) -> Subscription:
        async def answer(payload: bytes, traceparent: str) -> bytes:
            query = codec.decode(ProfileQuery, payload)
            return codec.encode(await self.profile(min(query.duration_ms, MOST_MS) / 1000))

        return await bus.serve(flow.PROFILE_SUBJECT, answer)

    async def profile(self, duration_s: float) -> WorkerProfile:
        """Begins and ends at a boundary between two steps. It ends too when nobody waits for it any more."""
        loop = asyncio.get_running_loop()
        async with self._turn:
            ready: asyncio.Future[Profile] = loop.create_future()
            self._steps.call(self._laps.begin)
            loop_ns, process_ns = time.thread_time_ns(), time.process_time_ns()
            try:
                await asyncio.sleep(duration_s)
            finally:
                self._steps.call(lambda: _deliver(loop, ready, self._laps.end()))
            profile = await ready
            return WorkerProfile(
                worker=self._worker,
                duration_ns=profile.duration_ns,
                steps=profile.steps,
                batch_tokens=profile.batch_tokens,
                event_loop_cpu_ns=time.thread_time_ns() - loop_ns,
                process_cpu_ns=time.process_time_ns() - process_ns,
                laps=tuple(Lap(path, lap_ns) for path, lap_ns in sorted(profile.laps_ns.items())),
            )


def _deliver(loop: asyncio.AbstractEventLoop, ready: asyncio.Future[Profile], profile: Profile) -> None:
    def settle() -> None:
        if not ready.done():
            ready.set_result(profile)

    loop.call_soon_threadsafe(settle)
