#!/usr/bin/env bash
# What a worker of NATS JetStream can do to a message whose lease it lost to another worker.
#
# Versions: nats-server 2.15.1, nats-py 2.16.0, both from PyPI. Seen on 2026-12-01.
# Guess: the reply subject names the number of the delivery. So after a redelivery, a negative acknowledgement, a termination or a sign
#        of progress for the first delivery has no effect.
# Seen:  all of them act on the newest delivery. A late `-NAK` delivers the message a third time at once, while the second worker still holds
#        it. A late `+TERM` removes it from a work queue. A late `+WPI` starts the wait for the second worker anew.
# Effect: the wait for an acknowledgement is no lease that fences. A worker must not settle after its own deadline, and a run
#         must be protected by a lease of its own.
set -euo pipefail
source "$(dirname "$0")/nats.sh"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
nats_probe "$folder" <<'PY'
import asyncio, time
from nats.errors import TimeoutError
from nats.js.api import ConsumerConfig

ACK_WAIT = 2

async def late(client, subject, body):
    """Returns when the message comes a third time, in s after the second one, if a late answer is sent after 1 s, and what is stored."""
    stream = client.jetstream()
    await stream.add_stream(name=subject, subjects=[subject], retention="workqueue", storage="memory")
    await stream.publish(subject, b"job")
    worker = await stream.pull_subscribe(subject, "workers", config=ConsumerConfig(ack_wait=ACK_WAIT, max_deliver=-1))
    [first] = await worker.fetch(1, timeout=5)
    [second] = await worker.fetch(1, timeout=5)
    start = time.monotonic()
    assert (first.metadata.num_delivered, second.metadata.num_delivered) == (1, 2)
    assert first.reply != second.reply
    if body:
        await asyncio.sleep(1)
        await client.request(first.reply, body, timeout=5)
    try:
        await worker.fetch(1, timeout=5)
        third = round(time.monotonic() - start)
    except TimeoutError:
        third = None
    return third, (await stream.stream_info(subject)).state.messages

async def probe(client, ask, _):
    answers = {"none": None, "nak": b"-NAK", "term": b"+TERM", "wpi": b"+WPI"}
    seen = {name: await late(client, name, body) for name, body in answers.items()}
    print(f"late answer: third delivery in s after the second (ack_wait {ACK_WAIT} s), stored messages:", seen)
    assert seen == {"none": (2, 1), "nak": (1, 1), "term": (None, 0), "wpi": (3, 1)}, seen
PY
