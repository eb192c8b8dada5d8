//! One run: a server, a proxy before it, and workers; harmed for a while, left in peace until everything is acknowledged,
//! and judged.
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use idempotent_harness::proxy::Proxy;
use idempotent_testkit::history::{History, Kind, Line};
use rustix::process::Signal;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::database::Server;
use super::plan::{self, Harm};
use super::wire::{Deliver, News, Point, Start};
use super::workers::Workers;
use super::{InboxDatabase, InboxFlaw, judge};
use crate::args::Args;
use crate::deadline::{PATIENCE, Progress};
use crate::dice::Dice;
use crate::harness::keep;
use crate::time;
use crate::verdict::{Harms, Verdict};
use crate::workers::{WORKERS, own};

/// Deliveries that a worker has at once.
const PREFETCH: usize = 3;
/// Keys that are not done.
const BACKLOG: usize = 60;
/// In percent of the deliveries.
const DOOMED: u64 = 8;
const FAILING: u64 = 8;
const COPIED: u64 = 40;
const ENDING: u64 = 8;

/// A message that waits, or is with a worker.
struct Waiting {
    key: u64,
    due: Instant,
}

struct Play {
    server: Arc<Server>,
    proxy: Proxy,
    workers: Workers,
    dice: Dice,
    queue: VecDeque<Waiting>,
    /// The worker and the key of each delivery.
    out: BTreeMap<u64, (u32, u64)>,
    deliveries: u64,
    keys: u64,
    stopped: Vec<(Instant, u32)>,
    jobs: JoinSet<()>,
    peace: bool,
    died: BTreeMap<Point, u64>,
    kills: u64,
    acked: u64,
    taken_over: u64,
    /// Transactions that a statement of a handler has ended.
    ended: u64,
    harms: Harms,
    lines: Vec<Line>,
}

/// Plays one run.
///
/// # Errors
/// If it cannot be started, or what it is made of does not work.
///
/// # Cancellation
/// Dropping it kills the workers and the server.
pub(crate) async fn play(
    args: &Args,
    database: InboxDatabase,
    flaw: Option<InboxFlaw>,
    folder: &Path,
) -> anyhow::Result<Verdict> {
    let began = Instant::now();
    let mut play = Play::start(args, database, flaw, folder).await?;
    let harms = if args.calm { Vec::new() } else { plan::harms(args.seed, WORKERS, args.long) };
    play.harm(harms, args.long).await?;
    play.settle(if flaw.is_some() { PATIENCE / 6 } else { PATIENCE }).await?;
    play.judge(args, began.elapsed()).await
}

impl Play {
    async fn start(
        args: &Args,
        database: InboxDatabase,
        flaw: Option<InboxFlaw>,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        let server = tokio::task::spawn_blocking(move || Server::start(database)).await.context("no server")?;
        server.prepare().await?;
        let proxy = Proxy::start(&server.address()).await;
        let store = server.url().replace(&server.address(), &proxy.address());
        let start = Start { worker: 0, seed: args.seed, store, database, flaw };
        Ok(Self {
            server: Arc::new(server),
            proxy,
            workers: Workers::start(folder, start, WORKERS)?,
            dice: Dice::new(args.seed, 200),
            queue: VecDeque::new(),
            out: BTreeMap::new(),
            deliveries: 0,
            keys: 0,
            stopped: Vec::new(),
            jobs: JoinSet::new(),
            peace: args.calm,
            died: BTreeMap::new(),
            kills: 0,
            acked: 0,
            taken_over: 0,
            ended: 0,
            harms: Harms::default(),
            lines: Vec::new(),
        })
    }

    /// The bad times.
    async fn harm(&mut self, harms: Vec<(Duration, Harm)>, long: Duration) -> anyhow::Result<()> {
        let began = Instant::now();
        let mut harms = harms.into_iter().peekable();
        while began.elapsed() < long {
            let now = Instant::now();
            while let Some((_, harm)) = harms.next_if(|(at, _)| began + *at <= now) {
                self.suffer(harm, now)?;
            }
            while self.queue.len() + self.out.len() < BACKLOG {
                self.send(now);
            }
            let next = harms.peek().map_or(began + long, |(at, _)| began + *at);
            self.turn(next.min(now + Duration::from_millis(10))).await?;
        }
        Ok(())
    }

    /// Ends the harm and waits until nothing is left to do, or the wait is in vain.
    async fn settle(&mut self, patience: Duration) -> anyhow::Result<()> {
        self.peace = true;
        self.proxy.disarm();
        let mut progress = Progress::new(patience);
        while !(progress.is_in_vain() || self.queue.is_empty() && self.out.is_empty()) {
            progress.note(Some((self.queue.len() + self.out.len()) as u64));
            self.turn(Instant::now() + Duration::from_millis(10)).await?;
        }
        Ok(())
    }

    fn suffer(&mut self, harm: Harm, now: Instant) -> anyhow::Result<()> {
        match harm {
            Harm::Kill(place) => self.workers.places[place].signal(Signal::KILL)?,
            Harm::Pause(place, long) => {
                let process = &self.workers.places[place];
                process.signal(Signal::STOP)?;
                self.stopped.push((now + long, process.id));
                self.harms.pauses += 1;
            }
            Harm::Commit(fault) => {
                self.proxy.disarm();
                self.proxy.fail_next_with("COMMIT", fault);
            }
            Harm::Cut => {
                self.proxy.cut_all();
                self.harms.cuts += 1;
            }
            // One at a time.
            Harm::Crash if self.jobs.is_empty() => {
                let server = self.server.clone();
                self.jobs.spawn_blocking(move || server.crash());
                self.harms.crashes += 1;
            }
            Harm::Crash => {}
        }
        Ok(())
    }

    fn send(&mut self, now: Instant) {
        self.keys += 1;
        let key = self.keys;
        self.note(Kind::Produced, own(), Some(key));
        let copies = if self.dice.percent(COPIED) { self.dice.range(2, 3) } else { 1 };
        for _ in 0..copies {
            let due = now + self.dice.ms(0, 30);
            self.queue.push_back(Waiting { key, due });
        }
    }

    /// Everything that is due, and then a wait until something happens, or `at_most`.
    async fn turn(&mut self, at_most: Instant) -> anyhow::Result<()> {
        let now = Instant::now();
        let due: Vec<_> = self.stopped.extract_if(.., |(until, _)| *until <= now).collect();
        for (_, id) in due {
            if let Some(place) = self.workers.place(id) {
                self.workers.places[place].signal(Signal::CONT)?;
            }
        }
        self.hand_out(now);
        tokio::select! {
            heard = self.workers.hear() => {
                let (id, news) = heard?;
                self.hear(id, news).await?;
            }
            Some(done) = self.jobs.join_next() => done.context("the server did not come back")?,
            () = sleep_until(at_most) => {}
        }
        Ok(())
    }

    fn hand_out(&mut self, now: Instant) {
        for place in 0..self.workers.places.len() {
            let (id, ready) = (self.workers.places[place].id, self.workers.places[place].ready);
            while ready && self.out.values().filter(|(to, _)| *to == id).count() < PREFETCH {
                let Some(at) = self.queue.iter().position(|waiting| waiting.due <= now) else { return };
                let Some(Waiting { key, .. }) = self.queue.remove(at) else { return };
                self.deliveries += 1;
                let doomed = !self.peace && self.dice.percent(DOOMED);
                let dies = doomed.then(|| self.dice.pick(&Point::ALL)).flatten();
                let fails =
                    dies == Some(Point::AtRelease) || (!self.peace && dies.is_none() && self.dice.percent(FAILING));
                let ends = !self.peace && dies.is_none() && self.dice.percent(ENDING);
                self.out.insert(self.deliveries, (id, key));
                self.workers.places[place].deliver(&Deliver { delivery: self.deliveries, key, fails, ends, dies });
            }
        }
    }

    async fn hear(&mut self, id: u32, news: Option<News>) -> anyhow::Result<()> {
        let Some(place) = self.workers.place(id) else { return Ok(()) };
        match news {
            None => {
                if !self.workers.replace(place).await? {
                    bail!("worker {id} ended by itself; its log says why");
                }
                self.kills += 1;
                self.note(Kind::Crash, id.into(), None);
                let due = Instant::now() + Duration::from_millis(20);
                let lost = self.out.extract_if(.., |_, (to, _)| *to == id);
                self.queue.extend(lost.map(|(_, (_, key))| Waiting { key, due }));
            }
            Some(News::Ready) => self.workers.places[place].ready = true,
            Some(News::Dies(point)) => *self.died.entry(point).or_default() += 1,
            Some(News::TakenOver) => self.taken_over += 1,
            Some(News::Ended) => self.ended += 1,
            Some(News::Ack { delivery }) => {
                if let Some((_, key)) = self.out.remove(&delivery) {
                    self.acked += 1;
                    self.note(Kind::Ack, id.into(), Some(key));
                }
            }
            Some(News::Nack { delivery, after_ms }) => {
                if let Some((_, key)) = self.out.remove(&delivery) {
                    self.note(Kind::Nack, id.into(), Some(key));
                    let due = Instant::now() + Duration::from_millis(after_ms.min(500));
                    self.queue.push_back(Waiting { key, due });
                }
            }
        }
        Ok(())
    }

    fn note(&mut self, event: Kind, worker: idempotent_testkit::history::Label, key: Option<u64>) {
        self.lines.push(Line { key: key.map(|key| key.to_string()), ..Line::new(time::now(), worker, event) });
    }

    async fn judge(mut self, args: &Args, took: Duration) -> anyhow::Result<Verdict> {
        // A crash that was under way.
        while self.jobs.join_next().await.is_some() {}
        keep(args, &History::new(std::mem::take(&mut self.lines)))?;
        self.harms.unsettled = (self.queue.len() + self.out.len()) as u64;
        let found = judge::rows(&self.server, self.keys).await?;
        let (unknowns, seconds) = (self.proxy.met(), args.enough());
        let mut verdict = Verdict::of_rows(args, self.harms, (self.kills, self.taken_over, unknowns, self.keys), took);
        verdict.find(found);
        let some = (seconds / 5).max(1);
        verdict.tell("workers killed", self.kills, some * 4);
        verdict.tell("commits cut off", unknowns, some * 2);
        verdict.tell("connections cut", self.harms.cuts, u64::from(seconds >= 5));
        verdict.tell("crashes of the server", self.harms.crashes, u64::from(seconds >= 8));
        verdict.tell("taken over", self.taken_over, some / 2);
        verdict.tell("transactions ended by a handler", self.ended, some);
        verdict.tell("acknowledged", self.acked, some);
        for point in Point::ALL {
            let times = self.died.get(&point).copied().unwrap_or_default();
            verdict.tell(point.told(), times, u64::from(seconds >= 15));
        }
        Ok(verdict)
    }
}
