#!/usr/bin/env bash
# A message of MQTT 5 with an expiry, which a client of mosquitto received in time, but did not acknowledge before its connection ended.
#
# Versions: mosquitto 2.1.2 (Debian sid), paho-mqtt 2.2.0. Seen on 2026-12-01.
# Guess: the expiry limits how long a message waits for its first delivery. A message that was delivered in time, but not acknowledged, is
#        delivered again to the session, with DUP, also after its expiry.
# Seen:  after the expiry, it is not delivered again, and the session gets only the message without an expiry. This also holds if the
#        run of the worker takes longer than the expiry, and the client connects again at once. Before the expiry, both come again.
# Effect: a run that its worker did not finish is lost, and nobody gets an error. Choose an expiry longer than the longest run with the
#         pause until the next connection. To drop old messages, let the worker compare a time in the message instead.
set -euo pipefail
folder=$(mktemp -d)
source "$(dirname "$0")/debian.sh"
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$folder"' EXIT
unpack "$folder" sid mosquitto
# `ldconfig`, which does not run here, would create this link.
ln -s libpicohttpparser.so.1.2 "$folder/usr/lib/x86_64-linux-gnu/libpicohttpparser.so.1"
"$folder/env/bin/pip" install --quiet paho-mqtt==2.2.0
port=$(free_port)
# Without a configuration, the server listens on the loopback only.
"$folder/usr/sbin/mosquitto" -p "$port" 2>"$folder/log" &
for _ in {1..100}; do
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && break
    sleep 0.1
done
head -n 1 "$folder/log"
cat >"$folder/probe.py" <<'PY'
import sys, threading, time
from paho.mqtt.client import CallbackAPIVersion, Client, MQTTv5
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

class Worker:
    """A client with a session of one hour that acknowledges nothing by itself."""

    def __init__(self, name):
        self.got, ready = [], threading.Event()
        self.client = Client(CallbackAPIVersion.VERSION2, name, protocol=MQTTv5, manual_ack=True)
        self.client.on_connect = lambda client, *_: client.subscribe(name, 1)
        self.client.on_subscribe = lambda *_: ready.set()
        self.client.on_message = lambda client, data, message: self.got.append((message.payload.decode(), message.dup))
        session = Properties(PacketTypes.CONNECT)
        session.SessionExpiryInterval = 3600
        self.client.connect("127.0.0.1", int(sys.argv[1]), clean_start=False, properties=session)
        self.client.loop_start()
        assert ready.wait(10)

    def lose_connection(self):
        self.client.loop_stop()
        self.client.socket().close()

def case(name, connected, away):
    """Returns what a worker gets, and gets again after a lost connection. One message expires after 3 s, one never."""
    worker = Worker(name)
    expiry = Properties(PacketTypes.PUBLISH)
    expiry.MessageExpiryInterval = 3
    worker.client.publish(name, "expires", 1, properties=expiry)
    worker.client.publish(name, "stays", 1)
    time.sleep(connected)
    first = worker.got
    worker.lose_connection()
    time.sleep(away)
    again = Worker(name)
    time.sleep(1)
    again.lose_connection()
    return first, again.got

seen = [case("soon", 1, 0), case("away", 1, 4), case("run", 5, 0)]
print("delivered, and delivered again with DUP: before the expiry, after it, after a run longer than it:", *seen, sep="\n")
both, stays = [("expires", True), ("stays", True)], [("stays", True)]
assert [first for first, _ in seen] == [[("expires", False), ("stays", False)]] * 3
assert [again for _, again in seen] == [both, stays, stays]
PY
"$folder/env/bin/python" "$folder/probe.py" "$port"
