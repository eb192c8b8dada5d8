#!/usr/bin/env bash
# Counter streams of NATS JetStream beside deduplication.
#
# Versions: nats-server 2.15.1, nats-py 2.16.0, both from PyPI. Seen on 2026-11-27.
# Guess: a repeated increment with the same Nats-Msg-Id is answered as a duplicate with the value of the counter, and an increment
#        with an outdated Nats-Expected-Last-Subject-Sequence is refused as a wrong last sequence (10071).
# Seen:  the duplicate is recognized, and its answer has no `val`: a producer that lost the first answer does not learn the value.
#        The outdated condition is refused as "message counter increment is invalid" (10171), although the increment is valid.
# Effect: read the counter after a duplicate. Do not take 10171 for a malformed increment while a condition is set.
set -euo pipefail
source "$(dirname "$0")/nats.sh"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
nats_probe "$folder" <<'PY'
import json

async def probe(client, ask, _):
    stream = {"name": "C", "subjects": ["C.>"], "storage": "memory", "allow_msg_counter": True, "allow_direct": True}
    await ask("$JS.API.STREAM.CREATE.C", json.dumps(stream).encode())
    one = {"Nats-Incr": "1", "Nats-Msg-Id": "k1"}
    first, again = await ask("C.hits", headers=one), await ask("C.hits", headers=one)
    await ask("C.hits", headers={"Nats-Incr": "1"})
    stale = await ask("C.hits", headers={"Nats-Incr": "1", "Nats-Expected-Last-Subject-Sequence": "1"})
    seen = (first.get("val"), again.get("duplicate"), again.get("val"), stale["error"]["err_code"])
    print("value, duplicate, value of the duplicate, error of an outdated condition:", seen)
    assert seen == ("1", True, None, 10171), seen
PY
