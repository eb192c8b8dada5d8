#!/usr/bin/env bash
# A key of a NATS bucket that expired by its own TTL, and the Python client.
#
# Versions: nats-server 2.15.1, nats-py 2.16.0, both from PyPI. Seen on 2026-11-27.
# Guess: after the TTL of a key, `get` reports that the key is not found, and `create` succeeds, as after `delete`.
# Seen:  in a bucket with markers for expired keys (`subject_delete_marker_ttl`), the server replaces the key by a marker with the header
#        Nats-Marker-Reason: MaxAge. The client takes the marker for a value: `get` returns an entry with the value None, and `create`
#        fails with KeyWrongLastSequenceError until the marker itself expires.
# Effect: a lease that is built on `create` and a TTL stays taken for the lifetime of the marker. Read Nats-Marker-Reason, and update
#         with the revision of the marker.
set -euo pipefail
source "$(dirname "$0")/nats.sh"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
nats_probe "$folder" <<'PY'
import asyncio, json

async def probe(client, ask, _):
    bucket = {"name": "KV_leases", "subjects": ["$KV.leases.>"], "storage": "memory", "max_msgs_per_subject": 1,
              "allow_rollup_hdrs": True, "deny_delete": True, "allow_direct": True, "discard": "new",
              "allow_msg_ttl": True, "subject_delete_marker_ttl": 60_000_000_000}
    await ask("$JS.API.STREAM.CREATE.KV_leases", json.dumps(bucket).encode())
    await ask("$KV.leases.job", b"worker-1", {"Nats-TTL": "1s", "Nats-Expected-Last-Subject-Sequence": "0"})
    store = await client.jetstream().key_value("leases")
    assert (await store.get("job")).value == b"worker-1"
    for _ in range(200):
        entry = await store.get("job")
        if entry.value != b"worker-1":
            break
        await asyncio.sleep(0.1)
    try:
        await store.create("job", b"worker-2")
        created = "created"
    except Exception as error:
        created = type(error).__name__
    seen = (entry.value, entry.operation, created)
    print("value and operation after the expiry, result of create:", seen)
    assert seen == (None, None, "KeyWrongLastSequenceError"), seen
PY
