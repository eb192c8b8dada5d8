#!/usr/bin/env bash
# An hourly job in the night in which the clocks go forward, with the npm packages `cron`, `croner` and `cron-parser`.
#
# Versions: cron 4.4.0 (luxon 3.7.2), croner 11.0.1, cron-parser 5.10.6. Seen on 2026-12-01.
# Guess: an hourly job keeps its minute: 01:15, then 03:15. Only a job of a fixed hour that does not exist is moved.
# Seen:  so in croner and cron-parser. With cron, each expression with a run in the missing hour runs at 03:00 too: 01:15, 03:00, 03:15.
#        The extra run is at a minute that the expression does not have.
# Effect: an hourly job runs once too often, and a key made of the scheduled time finds no duplicate. Give such a job the time zone UTC, or
#         skip runs whose minute the expression does not have.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-audit --no-fund --no-save cron@4.4.0 luxon@3.7.2 croner@11.0.1 cron-parser@5.10.6
cat >probe.cjs <<'JS'
const assert = require('node:assert');
const { mock } = require('node:test');

const zone = 'Europe/Berlin';
const expression = '15 * * * *';
// The night of 2027-03-28: 01:59:59 is followed by 03:00:00.
const midnight = Date.parse('2027-03-27T23:00:00Z');
const clock = time => new Intl.DateTimeFormat('de', { timeZone: zone, hour: '2-digit', minute: '2-digit' }).format(time);

// The job really runs, on a mocked clock.
mock.timers.enable({ apis: ['Date', 'setTimeout'], now: midnight });
const { CronJob } = require('cron');
const ran = [];
const job = CronJob.from({ cronTime: expression, timeZone: zone, start: true, onTick: () => ran.push(clock(Date.now())) });
for (let minute = 0; minute < 4 * 60; minute++) {
    mock.timers.tick(60_000);
}
job.stop();
mock.timers.reset();

const { Cron } = require('croner');
const { CronExpressionParser } = require('cron-parser');
const parser = CronExpressionParser.parse(expression, { currentDate: new Date(midnight), tz: zone });
const seen = {
    cron: ran.join(' '),
    croner: new Cron(expression, { timezone: zone }).nextRuns(4, new Date(midnight)).map(clock).join(' '),
    'cron-parser': parser.take(4).map(date => clock(date.toDate())).join(' '),
};
console.log(seen);
assert.deepStrictEqual(seen, {
    cron: '00:15 01:15 03:00 03:15 04:15',
    croner: '00:15 01:15 03:15 04:15',
    'cron-parser': '00:15 01:15 03:15 04:15',
});
JS
node --no-warnings probe.cjs
