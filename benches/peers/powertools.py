"""AWS Lambda Powertools for Python on Redis: `python -c CODE HOST PORT` answers the lines of `cargo xtask bench peers`."""

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import redis
from aws_lambda_powertools.utilities.idempotency import IdempotencyConfig, idempotent_function
from aws_lambda_powertools.utilities.idempotency.persistence.cache import CachePersistenceLayer

# The numbers of each caller in a slice.
EACH = 1_000_000


class Context:
    """A Lambda context with the lease of the other peers."""

    @staticmethod
    def get_remaining_time_in_millis():
        return 30_000


class Runs:
    """A counter of the handler's runs."""

    def __init__(self):
        self.count = 0
        self.lock = threading.Lock()

    def add(self):
        with self.lock:
            self.count += 1


host, port = sys.argv[1:]
config = IdempotencyConfig(expires_after_seconds=7 * 86_400, use_local_cache=False)
config.register_lambda_context(Context())
client = redis.Redis(host=host, port=int(port), decode_responses=True)
store = CachePersistenceLayer(client=client)
runs = Runs()


@idempotent_function(data_keyword_argument="order", config=config, persistence_store=store, key_prefix="bench")
def place(order):
    runs.add()


def run(number):
    place(order=f"order-{number:014}")


def caller(first, end, keys):
    done = 0
    while time.monotonic() < end:
        number = first + done
        run(number % keys if keys else number)
        done += 1
    return done


def fill(numbers):
    for number in numbers:
        run(number)
    return len(numbers)


# Threads and their connections are kept, so a slice starts none.
with ThreadPoolExecutor(256) as pool:
    print("ready", flush=True)
    for line in sys.stdin:
        numbers = [int(word) for word in line.split()[1:]]
        before = runs.count
        if len(numbers) == 4:
            callers, milliseconds, first, keys = numbers
            end = time.monotonic() + milliseconds / 1_000
            work = [pool.submit(caller, first + task * EACH, end, keys) for task in range(callers)]
        else:
            (keys,) = numbers
            work = [pool.submit(fill, range(task, keys, 16)) for task in range(16)]
        done = sum(part.result() for part in work)
        print(done, runs.count - before, flush=True)
