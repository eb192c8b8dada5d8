// AWS Lambda Powertools for TypeScript on Redis: `node --input-type=module --eval CODE URL` answers the lines of
// `cargo xtask bench peers`.
import { createInterface } from 'node:readline';
import { IdempotencyConfig, makeIdempotent } from '@aws-lambda-powertools/idempotency';
import { CachePersistenceLayer } from '@aws-lambda-powertools/idempotency/cache';
import { createClient } from '@redis/client';

// The numbers of each caller in a slice.
const EACH = 1_000_000;
const url = process.argv.at(-1);
const client = await createClient({ url }).connect();
const config = new IdempotencyConfig({ expiresAfterSeconds: 7 * 86_400, useLocalCache: false });
// A Lambda context with the lease of the other peers.
config.registerLambdaContext({ getRemainingTimeInMillis: () => 30_000 });
const persistenceStore = new CachePersistenceLayer({ client });

let runs = 0;
const place = makeIdempotent(
  async (_order) => {
    runs += 1;
  },
  { persistenceStore, config, keyPrefix: 'bench' },
);

const run = (number) => place(`order-${String(number).padStart(14, '0')}`);

async function caller(first, end, keys) {
  let done = 0;
  while (performance.now() < end) {
    const number = first + done;
    await run(keys > 0 ? number % keys : number);
    done += 1;
  }
  return done;
}

async function fill(task, keys) {
  let done = 0;
  for (let number = task; number < keys; number += 64) {
    await run(number);
    done += 1;
  }
  return done;
}

console.log('ready');
for await (const line of createInterface({ input: process.stdin })) {
  const numbers = line.split(' ').slice(1).map(Number);
  const before = runs;
  let work;
  if (numbers.length === 4) {
    const [callers, milliseconds, first, keys] = numbers;
    const end = performance.now() + milliseconds;
    work = Array.from({ length: callers }, (_, task) => caller(first + task * EACH, end, keys));
  } else {
    work = Array.from({ length: 64 }, (_, task) => fill(task, numbers[0]));
  }
  const done = (await Promise.all(work)).reduce((sum, part) => sum + part, 0);
  console.log(`${done} ${runs - before}`);
}
await client.close();
