#!/usr/bin/env bash
# The duplicate window of NATS JetStream after a restart of the server.
#
# Versions: nats-server 2.15.1, nats-py 2.16.0, both from PyPI. Seen on 2026-11-30.
# Guess: a restart changes no answer: an id is a duplicate until its window ends, whether or not its message is still stored.
# Seen:  before the restart, the id of a consumed message of a work queue is a duplicate, as is that of a waiting one. After the
#        restart, the id of the consumed message is new, and the message is stored again, although the window is one hour. The id of the
#        waiting message is still a duplicate.
# Effect: a producer that resends after a restart of the server gets a second message from a stream that removes what is consumed
#        (`workqueue`, `interest`), or from which messages were deleted. Only a consumer that remembers keys detects it.
set -euo pipefail
source "$(dirname "$0")/nats.sh"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
nats_probe "$folder" <<'PY'
import json

async def probe(client, ask, restart):
    stream = {"name": "ORDERS", "subjects": ["orders.>"], "retention": "workqueue", "duplicate_window": 3600 * 10**9}
    await ask("$JS.API.STREAM.CREATE.ORDERS", json.dumps(stream).encode())
    send = lambda id: ask("orders.17", b"paid", {"Nats-Msg-Id": id})
    for id in ["consumed", "waiting"]:
        await send(id)
    worker = await client.jetstream().pull_subscribe("orders.>", durable="worker", stream="ORDERS")
    [message] = await worker.fetch(1)
    await message.ack_sync()
    before = [(await send(id)).get("duplicate", False) for id in ["consumed", "waiting"]]
    await restart()
    after = [(await send(id)).get("duplicate", False) for id in ["consumed", "waiting"]]
    print(f"duplicates of a consumed and of a waiting message: {before} before the restart, {after} after it")
    assert (before, after) == ([True, True], [False, True]), (before, after)
PY
