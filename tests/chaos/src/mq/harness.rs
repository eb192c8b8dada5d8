//! One run: a broker, a store, a publisher and consumers; harmed for a while, left in peace until everything is settled,
//! and judged.
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use idempotent::{Identity, Scene};
use idempotent_testkit::history::Kind as Event;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::broker::{Broker, Kind, suffer};
use super::copy::Copy;
use super::flaw::Flaw;
use super::publisher::Publisher;
use super::store::Store;
use super::worker::{LEASE, finishes_lost_runs};
use super::{judge, leftovers};
use crate::args::{Args, Topology};
use crate::deadline::{PATIENCE, Progress};
use crate::dice::Dice;
use crate::fleet::{Fleet, Heard, Template};
use crate::harness::keep;
use crate::jobs::Jobs;
use crate::plan::{self, Faults, Harm, JOINING};
use crate::resource::Fenced;
use crate::target::Done;
use crate::time;
use crate::verdict::{Harms, Verdict};
use crate::wire::{Ends, News, Order, Origin};
use crate::workers::{WORKERS, Workers, own};

/// The percentage of unreadable messages.
const GARBAGE: u64 = 3;
/// A broker that was killed, its queues and their retries take their time, on a busy machine more of it.
const UNHURRIED: Duration = PATIENCE.saturating_mul(3);
/// If so many workers end by themselves, another will do so, too.
const MANY: usize = 20;
/// The shortest stall, and when another copy arrives: the lease of the stopped run has expired, and the run is still stopped.
const STALL: Duration = LEASE.saturating_mul(2);
/// The longest stall. A stall ends after another worker has taken over the key, which takes long with a slow broker.
const LONGEST_STALL: Duration = LEASE.saturating_mul(40);
const COPY_AFTER: Duration = LEASE.saturating_add(Duration::from_millis(200));
/// The time that a handler must have left for a worker to be stopped in it.
const LONG_MS: u64 = 100;
/// The time from one stall to the next: most workers have to run, so that one of them takes over the key.
const STALL_EVERY: Duration = Duration::from_millis(2_500);
/// Between two looks at what the broker still has.
const LOOK: Duration = Duration::from_millis(500);
/// The number of consecutive checks that must find nothing. A broker updates its counts at intervals.
const SURE: u32 = 3;

/// A worker that is stopped in its run of a key.
struct Stalled {
    worker: u32,
    key: String,
    since: Instant,
}

struct Play {
    namespace: String,
    broker: Arc<dyn Broker>,
    workers: Workers,
    publisher: Publisher,
    resource: Fenced,
    dice: Dice,
    /// The keys, and whether the handler of each always fails.
    keys: BTreeMap<String, bool>,
    produced: BTreeSet<u64>,
    /// The messages whose worker is stopped during the handler, by key.
    stalls: BTreeMap<String, Copy>,
    /// The last stall, until another worker has taken over its key.
    stalled: Option<Stalled>,
    next_stall: Instant,
    sent: u64,
    of_the_store: Jobs,
    of_the_broker: Jobs,
    asking: JoinSet<anyhow::Result<Vec<(String, u64)>>>,
    /// The number of consecutive checks without messages at the broker.
    empty: u32,
    /// The number of messages that the broker had at the last look.
    left: Option<u64>,
    kind: Kind,
    /// The number of copies of deferred messages that the broker has delivered for the first time.
    deferred: u64,
    /// The number of partitions that a rebalance has taken from a worker.
    revoked: u64,
    /// Workers that ended without a kill.
    ended: Vec<u32>,
    /// True if no worker kills itself any more.
    peace: bool,
    harms: Harms,
}

/// Plays one run: this broker, with the records there, and this wrong on purpose.
///
/// # Errors
/// If it cannot be started, or what it is made of does not work.
///
/// # Cancellation
/// Dropping it kills the workers and the servers.
pub(crate) async fn play(
    args: &Args,
    (kind, store, flaw): (Kind, &Topology, Option<Flaw>),
    folder: &Path,
) -> anyhow::Result<Verdict> {
    let began = Instant::now();
    let store = Store::start(store, folder).await?;
    let broker = kind.start().await?;
    let broker_crashes = broker.place().0.is_durable();
    let faults = Faults { broker: true, broker_crashes, members: kind.rebalances(), ..store.target.faults() };
    let faults = if args.calm { Faults::default() } else { faults };
    let namespace = format!("chaos{:x}", time::now());
    let origin = Some(Origin { kind, url: broker.url(), flaw });
    let template = Template { store: store.url(), weakness: None, namespace: namespace.clone(), origin };
    let (fleet, hears) = Fleet::new(folder, template, args.seed)?;
    let harmed = broker.clone();
    let mut play = Play {
        namespace,
        workers: Workers::start(fleet, hears)?,
        publisher: Publisher::new(broker.clone(), flaw == Some(Flaw::UnconfirmedPublisher)),
        broker,
        resource: Fenced::default(),
        dice: Dice::new(args.seed, 100),
        keys: BTreeMap::new(),
        produced: BTreeSet::new(),
        stalls: BTreeMap::new(),
        stalled: None,
        next_stall: if kind.rebalances() { began + JOINING } else { began },
        sent: 0,
        of_the_store: Jobs::new(move |harm| store.suffer(harm)),
        of_the_broker: Jobs::new(move |harm| suffer(&*harmed, harm).map(|()| Done::new(harm))),
        asking: JoinSet::new(),
        empty: 0,
        left: None,
        kind,
        deferred: 0,
        revoked: 0,
        ended: Vec::new(),
        peace: args.calm,
        harms: Harms::default(),
    };
    play.start().await?;
    let harms = if args.calm { Vec::new() } else { plan::harms(args.seed, WORKERS, args.long, faults) };
    play.harm(harms, args.long).await?;
    // What is wrong on purpose need not come to an end.
    play.settle(if flaw.is_some() { PATIENCE / 3 } else { UNHURRIED }).await?;
    let mut verdict = play.judge(args, faults, began).await?;
    verdict.find(leftovers::processes().iter().map(|name| format!("D6: a process is left: {name}")));
    Ok(verdict)
}

impl Play {
    async fn start(&mut self) -> anyhow::Result<()> {
        let ready = async {
            while !self.workers.is_ready() {
                let heard = self.workers.hear().await?;
                self.hear(heard).await?;
            }
            anyhow::Ok(())
        };
        timeout(PATIENCE, ready).await.context("the workers could not connect")?
    }

    /// The bad times.
    async fn harm(&mut self, harms: Vec<(Duration, Harm)>, long: Duration) -> anyhow::Result<()> {
        let began = Instant::now();
        let mut harms = harms.into_iter().peekable();
        let mut next_message = began;
        while began.elapsed() < long {
            let now = Instant::now();
            while let Some((_, harm)) = harms.next_if(|(at, _)| began + *at <= now) {
                if self.spares(harm) {
                    continue;
                }
                if !self.workers.suffer(harm)? {
                    let jobs = if harm.is_of_the_broker() { &mut self.of_the_broker } else { &mut self.of_the_store };
                    jobs.put(harm);
                }
            }
            while next_message <= now {
                next_message += self.kind.pace();
                self.send();
            }
            self.turn(next_message).await?;
        }
        Ok(())
    }

    /// Ends the faults, and waits until nothing is left to do or the wait is in vain.
    async fn settle(&mut self, patience: Duration) -> anyhow::Result<()> {
        self.of_the_store.forget();
        self.of_the_broker.forget();
        self.peace = true;
        if let Some(stalled) = self.stalled.take() {
            self.workers.resume_by(stalled.worker, stalled.since + STALL);
        }
        self.workers.tell_all(&Order::Peace);
        let (mut progress, mut look) = (Progress::new(patience), Instant::now());
        while !progress.is_in_vain() && (self.is_busy() || self.empty < SURE) {
            progress.note(self.left);
            if !self.is_busy() && self.asking.is_empty() && Instant::now() >= look {
                look = Instant::now() + LOOK;
                let broker = self.broker.clone();
                self.asking.spawn_blocking(move || broker.left());
            }
            self.turn(Instant::now() + LOOK / 10).await?;
        }
        Ok(())
    }

    fn is_busy(&self) -> bool {
        let publishing = self.publisher.under_way() > 0;
        let harmed = !self.of_the_store.is_idle() || !self.of_the_broker.is_idle();
        publishing || harmed || self.workers.resumed().is_some() || !self.workers.is_ready()
    }

    /// Everything that is due, and then a wait until something is, or `at_most`.
    async fn turn(&mut self, at_most: Instant) -> anyhow::Result<()> {
        self.workers.resume(Instant::now())?;
        let due = self.workers.resumed().map_or(at_most, |resumed| resumed.min(at_most));
        tokio::select! {
            heard = self.workers.hear() => {
                self.hear(heard?).await?;
                while let Some(heard) = self.workers.heard() {
                    self.hear(heard).await?;
                }
            }
            Some(done) = self.of_the_store.done() => self.harms.of_servers(&done?),
            Some(done) = self.of_the_broker.done() => self.harms.of_servers(&done?),
            Some(copy) = self.publisher.confirmed() => self.confirmed(&*copy?),
            Some(left) = self.asking.join_next() => {
                let left = left??;
                self.empty = if left.is_empty() { self.empty + 1 } else { 0 };
                self.left = Some(left.iter().map(|(_, number)| number).sum());
            }
            () = sleep_until(due) => {}
        }
        Ok(())
    }

    fn send(&mut self) {
        if self.publisher.under_way() >= self.kind.backlog() {
            return;
        }
        self.sent += 1;
        if self.dice.percent(GARBAGE) {
            return self.publisher.send(Copy::undecodable(self.sent, &self.dice), Duration::ZERO);
        }
        let sent = plan::sent(self.sent, &self.dice);
        let key = self.key(self.sent);
        if sent.message.fenced && sent.message.after_ms >= LONG_MS {
            self.stalls.insert(key.clone(), Copy::resent(&sent, &self.dice));
        }
        self.keys.insert(key, sent.message.ends == Ends::FailsForGood);
        for (copy, number) in Copy::of(&sent, &self.dice).into_iter().zip(1..) {
            let late = sent.late.filter(|_| number > sent.copies).unwrap_or_default();
            self.publisher.send(copy, late);
        }
    }

    fn key(&self, number: u64) -> String {
        storage_key(&self.namespace, number)
    }

    fn confirmed(&mut self, copy: &Copy) {
        if let Some(number) = copy.key.filter(|number| self.produced.insert(*number)) {
            let key = self.key(number);
            self.workers.note(Event::Produced, own(), Some(&key));
        }
    }

    async fn hear(&mut self, (id, heard): (u32, Heard)) -> anyhow::Result<()> {
        let Some(place) = self.workers.place(id) else { return Ok(()) };
        match heard {
            Heard::Gone => {
                self.stalled.take_if(|stalled| stalled.worker == id);
                if let (id, false) = self.workers.gone(place).await? {
                    self.ended.push(id);
                }
                if self.ended.len() > MANY {
                    bail!("workers {:?} ended by themselves; their logs say why", self.ended);
                }
            }
            Heard::Nonsense(text) => bail!("worker {id} says what is no news: {text}"),
            Heard::News(News::Ready) => {
                let process = &mut self.workers.places[place];
                process.ready = true;
                if self.peace {
                    process.tell(&Order::Peace);
                }
            }
            Heard::News(News::Write { effect, key, token, fence }) => {
                self.end_stall(id, &key);
                let stall = self.stall(id, &key);
                let accepted = self.resource.write(key, token, fence);
                self.workers.places[place].tell(&Order::Wrote { effect, accepted });
                if let Some(copy) = stall {
                    self.workers.suffer(Harm::Pause(place, self.longest_stall()))?;
                    self.publisher.send(copy, COPY_AFTER);
                }
            }
            Heard::News(News::Received { deferred }) => self.deferred += deferred,
            Heard::News(News::Revoked { partitions }) => self.revoked += partitions,
            // The broker hears of those.
            Heard::News(News::Bury { .. } | News::Ack { .. } | News::Nack { .. }) => {}
        }
        Ok(())
    }

    /// Returns the copy to publish if this worker is to be stopped in its run of the key. Other workers than these end a
    /// run that has lost its lease without asking the store.
    fn stall(&mut self, worker: u32, key: &str) -> Option<Copy> {
        let now = Instant::now();
        let is_stalled = self.stalled.as_ref().is_some_and(|stalled| now < stalled.since + self.longest_stall());
        if self.peace || is_stalled || now < self.next_stall || !finishes_lost_runs(worker) {
            return None;
        }
        let copy = self.stalls.remove(key)?;
        self.stalled = Some(Stalled { worker, key: key.to_owned(), since: now });
        self.next_stall = now + if self.kind.rebalances() { STALL_EVERY * 2 } else { STALL_EVERY };
        Some(copy)
    }

    /// Returns true if this kill would leave too few workers that are ready, or end a stall before its takeover. On a busy
    /// machine, a worker needs seconds to connect.
    fn spares(&self, harm: Harm) -> bool {
        let Harm::Kill(place) = harm else { return false };
        let is_stalled = |id| self.stalled.as_ref().is_some_and(|stalled| stalled.worker == id);
        let places = self.workers.places.iter().enumerate();
        let ready = places.filter(|(other, process)| *other != place && process.ready).count();
        ready < WORKERS / 2 || is_stalled(self.workers.places[place].id)
    }

    /// Ends the stall of a key that another worker has taken over. The stopped run then finds its lease lost.
    fn end_stall(&mut self, worker: u32, key: &str) {
        if let Some(stalled) = self.stalled.take_if(|stalled| stalled.worker != worker && stalled.key == key) {
            self.workers.resume_by(stalled.worker, stalled.since + STALL);
        }
    }

    /// Returns the time limit of a stall. A member of a group that is stopped for longer would be expelled.
    fn longest_stall(&self) -> Duration {
        if self.kind.rebalances() { STALL } else { LONGEST_STALL }
    }

    async fn judge(mut self, args: &Args, faults: Faults, began: Instant) -> anyhow::Result<Verdict> {
        self.workers.dismiss().await?;
        if self.sent == 0 {
            bail!("no message was sent");
        }
        let broker = self.broker.clone();
        let left = tokio::task::spawn_blocking(move || broker.left()).await??;
        let letters = self.broker.letters().await?;
        self.harms.pauses = self.workers.pauses;
        self.harms.dead_letters = letters.len() as u64;
        let namespace = self.namespace.clone();
        let key = |number| storage_key(&namespace, number);
        let produced: Vec<String> = self.produced.iter().map(|number| key(*number)).collect();
        let expected = judge::Expected { letter: &|copy| self.broker.letter(copy), key: &key };
        let ledger = &self.publisher.ledger;
        let history = self.workers.history(&self.resource, produced)?;
        keep(args, &history)?;
        let fates = judge::fates(&history);
        let mut verdict = Verdict::of(args, faults, self.harms, &history, began.elapsed());
        verdict.find(judge::letters(ledger, &letters, &fates, &expected));
        verdict.find(judge::burials(&fates, |key| self.keys.get(key).copied().unwrap_or_default()));
        verdict.find(left.iter().map(|(queue, count)| format!("D5: {count} are left in {queue}")));
        let unheard = ledger.copies.iter().filter(|(_, (_, confirmed))| !confirmed);
        verdict.find(unheard.map(|(name, _)| format!("D8: {name} could not be published")));
        verdict.find(self.ended.iter().map(|id| format!("D7: worker {id} ended by itself; its log says why")));
        let is_forged = |(copy, confirmed): &&(Arc<Copy>, bool)| copy.forged && *confirmed;
        let forged = self.broker.forges().then(|| ledger.copies.values().filter(is_forged).count() as u64);
        let counts = (letters.len() as u64, forged);
        judge::tell(&mut verdict, &history, counts, ledger.resent, args.enough());
        if self.kind.marks_redeliveries() {
            verdict.tell("copies of deferred messages", self.deferred, 0);
            verdict.find(judge::copies(self.kind, self.deferred));
        }
        if self.kind.rebalances() {
            // The partitions of a killed member move without a revocation, so the takeovers show these rebalances.
            verdict.tell("revoked partitions", self.revoked, 0);
        }
        Ok(verdict)
    }
}

fn storage_key(namespace: &str, number: u64) -> String {
    // Of a number: never refused.
    let key = Identity::new(Scene::Mq, "chaos", &number).key(namespace);
    key.map(|key| key.as_str().to_owned()).unwrap_or_default()
}
