//! The phases of a play: faults, and the quiet time after them.
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use idempotent::delay_queue::DelayQueue;
use idempotent_harness::proxy::Proxy;
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::notes;
use super::plan::{self, Harm, Targets};
use super::process::Point;
use super::wire::{Role, Start};
use super::workers::Workers;
use crate::args::Args;
use crate::deadline::{PATIENCE, Progress};
use crate::server::Server;
use crate::verdict::{Harms, Verdict};

pub(super) struct Stage {
    pub(super) workers: Workers,
    /// Each with the proxy before it.
    pub(super) servers: Vec<(Arc<dyn Server>, Proxy)>,
    /// One at a time, of each.
    crashing: Vec<JoinSet<()>>,
    /// The end of the last restart of each server.
    restarted: Vec<Option<Instant>>,
    pub(super) harms: Harms,
}

/// Between two looks at whether all is done.
const LOOK: Duration = Duration::from_millis(250);
/// The number of consecutive checks that must find nothing to do.
const SURE: u32 = 3;
/// The minimum time between the restart of a server and its next crash. A server that starts slowly on a busy machine would
/// otherwise be down during most of the play.
const UP: Duration = Duration::from_secs(5);
/// If so many end by themselves, another will do so, too.
const MANY: usize = 20;

/// The processes of a play after their end, and what they noted.
pub(super) struct Played<N> {
    pub(super) stage: Stage,
    pub(super) notes: Vec<(u32, N)>,
    rests: bool,
    stuck: Vec<u32>,
    began: Instant,
}

impl<N> Played<N> {
    /// Returns the verdict with these findings. `end` names the finding that the play did not come to an end, or that a process
    /// ended by itself or not at all.
    pub(super) fn verdict(&self, args: &Args, (unsure, sent): (u64, u64), found: Vec<String>, end: &str) -> Verdict {
        let Self { stage: Stage { workers, harms, .. }, rests, stuck, .. } = self;
        let mut verdict = Verdict::of_rows(args, *harms, (workers.kills, 0, unsure, sent), self.began.elapsed());
        verdict.find(found);
        verdict.find((!rests).then(|| format!("{end}: it does not come to rest")));
        let ended = workers.by_themselves.iter();
        verdict.find(ended.map(|id| format!("{end}: process {id} ended by itself; its log says why")));
        verdict.find(stuck.iter().map(|id| format!("{end}: process {id} did not end after the stop signal")));
        verdict
    }
}

/// Starts these processes, harms them and the servers, and waits until `left` counts nothing that is left to do.
///
/// A play with a deliberate flaw need not come to an end, so its patience is divided by `hurry`.
pub(super) async fn play<N: DeserializeOwned>(
    args: &Args,
    folder: &Path,
    (start, roles): (Start, &[Role]),
    servers: Vec<(Arc<dyn Server>, Proxy)>,
    hurry: u32,
    left: impl AsyncFnMut() -> Option<u64>,
) -> anyhow::Result<Played<N>> {
    let began = Instant::now();
    let patience = if start.flaw.is_some() { PATIENCE / hurry } else { PATIENCE };
    let mut stage = Stage::new(Workers::start(folder, start, roles)?, servers);
    stage.harm(args, roles.len()).await?;
    let rests = stage.settle(patience, left).await?;
    let stuck = stage.workers.dismiss().await?;
    let notes = notes::read(folder, stage.workers.last())?;
    Ok(Played { stage, notes, rests, stuck, began })
}

impl Stage {
    fn new(workers: Workers, servers: Vec<(Arc<dyn Server>, Proxy)>) -> Self {
        let crashing = servers.iter().map(|_| JoinSet::new()).collect();
        let restarted = vec![None; servers.len()];
        Self { workers, servers, crashing, restarted, harms: Harms::default() }
    }

    /// Adds the faults to the verdict. A run of `some` times five seconds must contain this many kills.
    pub(super) fn tell(&self, verdict: &mut Verdict, kills: u64, some: u64, crashes: (&'static str, u64)) {
        let server = u64::from(!self.servers.is_empty());
        verdict.tell("processes killed", self.workers.kills, kills);
        verdict.tell("processes stopped", self.workers.pauses, some);
        verdict.tell("connections cut", self.harms.cuts, some * server);
        verdict.tell(crashes.0, self.harms.crashes, crashes.1 * server);
    }

    /// The bad times.
    async fn harm(&mut self, args: &Args, processes: usize) -> anyhow::Result<()> {
        let targets = Targets { processes, servers: self.servers.len() };
        let harms = if args.calm { Vec::new() } else { plan::harms(args.seed, targets, args.long) };
        let began = Instant::now();
        for (at, harm) in harms {
            self.pass(began + at).await?;
            self.suffer(harm)?;
        }
        self.pass(began + args.long).await
    }

    /// Ends the harm and waits until nothing is left to do; returns whether that was reached.
    ///
    /// `left` counts what is left to do, `None` where a server does not answer. A busy machine only takes longer: the wait is
    /// over once the count has not fallen for `patience`.
    async fn settle(&mut self, patience: Duration, mut left: impl AsyncFnMut() -> Option<u64>) -> anyhow::Result<bool> {
        self.workers.peace();
        let (mut progress, mut sure) = (Progress::new(patience), 0);
        while !progress.is_in_vain() {
            self.pass(Instant::now() + LOOK).await?;
            let quiet = self.workers.all_is_sent() && !self.workers.any_stopped();
            let quiet = quiet && self.crashing.iter().all(JoinSet::is_empty);
            let left = if quiet { left().await } else { None };
            sure = if left == Some(0) { sure + 1 } else { 0 };
            if sure == SURE {
                return Ok(true);
            }
            progress.note(left);
        }
        // Whatever is left is read from servers that are there.
        for crashing in &mut self.crashing {
            while let Some(done) = crashing.join_next().await {
                done.context("a server did not come back")?;
            }
        }
        Ok(false)
    }

    fn suffer(&mut self, harm: Harm) -> anyhow::Result<()> {
        match harm {
            Harm::Kill(place) => self.workers.kill(place)?,
            Harm::Pause(place, long) => self.workers.pause(place, long)?,
            Harm::Cut(server) => {
                self.servers[server].1.cut_all();
                self.harms.cuts += 1;
            }
            Harm::Crash(server) if self.may_crash(server) => {
                let harmed = self.servers[server].0.clone();
                self.crashing[server].spawn_blocking(move || harmed.crash());
                self.harms.crashes += 1;
            }
            Harm::Crash(_) => {}
        }
        Ok(())
    }

    /// Returns whether the server runs, and has run for long enough.
    fn may_crash(&self, server: usize) -> bool {
        self.crashing[server].is_empty() && self.restarted[server].is_none_or(|restarted| restarted.elapsed() >= UP)
    }

    /// Replaces killed processes and continues stopped ones until this time.
    async fn pass(&mut self, until: Instant) -> anyhow::Result<()> {
        while Instant::now() < until {
            self.workers.resume(Instant::now())?;
            for (crashing, restarted) in self.crashing.iter_mut().zip(&mut self.restarted) {
                if let Some(done) = crashing.try_join_next() {
                    done.context("a server did not come back")?;
                    *restarted = Some(Instant::now());
                }
            }
            tokio::select! {
                gone = self.workers.gone() => {
                    let gone = gone?;
                    self.workers.replace(gone).await?;
                    if self.workers.by_themselves.len() > MANY {
                        bail!("{:?} ended by themselves; their logs say why", self.workers.by_themselves);
                    }
                }
                () = sleep_until(until.min(Instant::now() + Duration::from_millis(20))) => {}
            }
        }
        self.harms.pauses = self.workers.pauses;
        Ok(())
    }
}

/// The deaths of processes by point.
#[derive(Debug, Default)]
pub(super) struct Deaths(BTreeMap<Point, u64>);

impl Deaths {
    pub(super) fn add(&mut self, point: Point) {
        *self.0.entry(point).or_default() += 1;
    }

    pub(super) fn of(&self, point: Point) -> u64 {
        self.0.get(&point).copied().unwrap_or_default()
    }

    /// Adds the deaths at these points to the verdict, which must be at least this number each.
    pub(super) fn tell(&self, verdict: &mut Verdict, points: &[(Point, &'static str)], least: u64) {
        for (point, name) in points {
            verdict.tell(name, self.of(*point), least);
        }
    }
}

/// Returns the number of messages of a delay queue that are ready, waiting or in flight.
pub(super) async fn unsettled(queue: &DelayQueue) -> Option<u64> {
    let counts = queue.counts().await.ok()?;
    Some(counts.ready + counts.waiting + counts.in_flight)
}
