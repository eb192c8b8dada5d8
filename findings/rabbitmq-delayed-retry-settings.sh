#!/usr/bin/env bash
# Settings of the delayed retry of quorum queues that contradict themselves.
#
# Versions: RabbitMQ 4.3.6 (Debian sid), pika 1.4.4. Seen on 2026-11-28.
# Guess: the declaration of a quorum queue with an unknown `x-delayed-retry-type`, or with a minimum above the maximum, is refused as
#        PRECONDITION_FAILED, as for an unknown `x-overflow`.
# Seen:  both queues are declared. The unknown type switches the delay off, and the maximum is the delay, below the minimum. A
#        minimum without a maximum is the delay of each retry, and a maximum without a minimum is none.
# Effect: a typing error makes a retry loop without a pause. Check the settings in the client.
set -euo pipefail
folder=$(mktemp -d)
source "$(dirname "$0")/debian.sh"
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$folder"' EXIT
unpack "$folder" sid rabbitmq-server
"$folder/env/bin/pip" install --quiet pika==1.4.4
release=("$folder"/usr/lib/rabbitmq/lib/*)
sed -i "s|/usr/lib/erlang|$folder/usr/lib/erlang|" "$folder"/usr/lib/erlang/bin/{erl,start}
echo "version: $(basename "${release[0]}")"
export PATH="$folder/usr/lib/erlang/bin:$PATH" HOME="$folder" RUNNING_UNDER_SYSTEMD=true RABBITMQ_CONF_ENV_FILE=/dev/null
export RABBITMQ_NODE_PORT RABBITMQ_DIST_PORT ERL_EPMD_PORT ERL_EPMD_ADDRESS=127.0.0.1 RABBITMQ_NODE_IP_ADDRESS=127.0.0.1
RABBITMQ_NODE_PORT=$(free_port) RABBITMQ_DIST_PORT=$(free_port) ERL_EPMD_PORT=$(free_port)
export RABBITMQ_NODENAME="finding@localhost" RABBITMQ_MNESIA_BASE="$folder/data" RABBITMQ_LOGS=-
export RABBITMQ_ENABLED_PLUGINS_FILE="$folder/plugins" RABBITMQ_CONFIG_FILE="$folder/none"
echo '[].' >"$folder/plugins"
"$folder"/usr/lib/erlang/erts-*/bin/epmd -address 127.0.0.1 -port "$ERL_EPMD_PORT" &
"${release[0]}/sbin/rabbitmq-server" >"$folder/log" 2>&1 &
cat >"$folder/probe.py" <<'PY'
import sys, time
import pika

for _ in range(300):
    try:
        connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", int(sys.argv[1])))
        break
    except pika.exceptions.AMQPConnectionError:
        time.sleep(0.2)
channel = connection.channel()
channel.confirm_delivery()

def pause(settings):
    """Returns the time in s after which a message that was returned comes back."""
    channel.queue_declare("q", durable=True, arguments={"x-queue-type": "quorum", **settings})
    channel.basic_publish("", "q", b"")
    channel.basic_nack(channel.basic_get("q")[0].delivery_tag, requeue=True)
    start = time.monotonic()
    while not (got := channel.basic_get("q"))[0]:
        time.sleep(0.01)
    channel.basic_ack(got[0].delivery_tag)
    channel.queue_delete("q")
    return round(time.monotonic() - start)

def settings(kind, least=None, most=None):
    named = {"x-delayed-retry-type": kind, "x-delayed-retry-min": least, "x-delayed-retry-max": most}
    return {name: value for name, value in named.items() if value is not None}

pauses = {
    "unknown type": pause(settings("sometimes", 2000, 4000)),
    "min 5 s, max 2 s": pause(settings("all", 5000, 2000)),
    "min 2 s": pause(settings("all", 2000)),
    "max 2 s": pause(settings("all", None, 2000)),
}
print("pause in s:", pauses)
assert list(pauses.values()) == [0, 2, 2, 0], pauses
PY
"$folder/env/bin/python" "$folder/probe.py" "$RABBITMQ_NODE_PORT"
