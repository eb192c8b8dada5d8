#!/usr/bin/env bash
# Handlers behind the middleware express-idempotency that end their response in other ways than by `res.send`.
#
# Versions: express-idempotency 1.0.6, express 5.3.0. Seen on 2026-12-01.
# Guess: the response is stored when it ends, however the handler ends it. A duplicate of `res.end('paid')` or of a 204 gets the same
#        response again. A handler that throws frees the key, as a response with the status 500 does.
# Seen:  only `res.send`, `res.json` and `res.sendStatus` are noticed. After `res.end`, `res.status(204).end()`, `res.redirect` or a
#        thrown error, each duplicate is refused with 409, "A previous request is still in progress for this key.".
# Effect: a client that lost such a response never learns that its request succeeded. A retry after a thrown error does not run, unless
#         the handler calls `reportError`. End responses by `send`, and give the stored keys an expiry.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-audit --no-fund --ignore-scripts express-idempotency@1.0.6 express@5.3.0
cat >probe.mjs <<'JS'
import assert from 'node:assert';
import express from 'express';
import { getSharedIdempotencyService, idempotency } from 'express-idempotency';

const ways = {
  send: (res) => res.send('paid'),
  json: (res) => res.json('paid'),
  sendStatus: (res) => res.sendStatus(204),
  failed: (res) => res.status(500).send('not paid'),
  end: (res) => res.end('paid'),
  noContent: (res) => res.status(204).end(),
  redirect: (res) => res.redirect(303, '/receipt'),
  thrown: () => { throw new Error('not paid'); },
};
const app = express();
const runs = {};
app.use(idempotency());
for (const [way, respond] of Object.entries(ways)) {
  app.post(`/${way}`, (req, res) => {
    if (getSharedIdempotencyService().isHit(req)) return;
    runs[way] = (runs[way] ?? 0) + 1;
    respond(res);
  });
}
const server = app.listen(0, '127.0.0.1');
await new Promise((resolve) => server.once('listening', resolve));
const post = async (way) => {
  const headers = { 'idempotency-key': way };
  const response = await fetch(`http://127.0.0.1:${server.address().port}/${way}`,
    { method: 'POST', redirect: 'manual', headers, signal: AbortSignal.timeout(10_000) });
  return [response.status, await response.text()];
};
const seen = {};
for (const way of Object.keys(ways)) {
  const [first] = await post(way);
  // Long enough for the middleware, which stores the response in memory.
  await new Promise((resolve) => setTimeout(resolve, 500));
  const [second, text] = await post(way);
  if (second === 409) assert.match(text, /A previous request is still in progress for this key/);
  seen[way] = [first, second, runs[way]];
}
console.log('status of the request and of its duplicate, runs of the handler:', seen);
assert.deepEqual(seen, {
  send: [200, 200, 1], json: [200, 200, 1], sendStatus: [204, 204, 1], failed: [500, 500, 2],
  end: [200, 409, 1], noContent: [204, 409, 1], redirect: [303, 409, 1], thrown: [500, 409, 1],
});
server.close();
server.closeAllConnections();
JS
# Without this setting, Express prints thrown errors.
NODE_ENV=test node probe.mjs
