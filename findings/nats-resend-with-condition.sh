#!/usr/bin/env bash
# Conditions of a publisher on NATS JetStream beside deduplication.
#
# Versions: nats-server 2.15.1, nats-py 2.16.0, both from PyPI. Seen on 2026-11-29.
# Guess: a message that is sent again unchanged, with the same Nats-Msg-Id and the same condition, is answered as a duplicate,
#        whichever condition it has: the server looks for the id first.
# Seen:  with Nats-Expected-Last-Sequence or Nats-Expected-Last-Subject-Sequence, the resent message is refused as a wrong last
#        sequence (10071), since the message itself is the last one now. With Nats-Expected-Last-Msg-Id, the resent message is a
#        duplicate with the sequence of the stored one.
# Effect: after a lost answer, 10071 does not show that another writer was first. Read the last message of the subject, and
#        compare its id, or use the condition by message id.
set -euo pipefail
source "$(dirname "$0")/nats.sh"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
nats_probe "$folder" <<'PY'
import json

async def probe(client, ask, _):
    await ask("$JS.API.STREAM.CREATE.ORDERS", json.dumps({"name": "ORDERS", "subjects": ["orders.>"]}).encode())
    answers = {}
    for id, condition, value in [
        ("m-1", "Nats-Expected-Last-Subject-Sequence", "0"),
        ("m-2", "Nats-Expected-Last-Sequence", "1"),
        ("m-3", "Nats-Expected-Last-Msg-Id", "m-2"),
    ]:
        send = lambda: ask("orders.17", b"paid", {"Nats-Msg-Id": id, condition: value})
        answers[condition] = (await send(), await send())
    for condition, (first, again) in answers.items():
        print(f"{condition}: {first}, then {again}")
    seen = [
        (first["seq"], again.get("error", {}).get("err_code"), again.get("duplicate"), again["seq"])
        for first, again in answers.values()
    ]
    assert seen == [(1, 10071, None, 0), (2, 10071, None, 0), (3, None, True, 3)], seen
PY
