//! One run: servers and workers are started, harmed for a while, left in peace until everything has come to an end,
//! and judged.
mod events;

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use idempotent::{Identity, Scene};
use idempotent_testkit::history::{History, Kind};
use tokio::time::{Instant, sleep_until, timeout};

use crate::args::{Args, Subject, Topology};
use crate::broken_stores::Weakness;
use crate::broker::Broker;
use crate::deadline::{PATIENCE, Progress};
use crate::dice::Dice;
use crate::fleet::{Fleet, Template};
use crate::jobs::Jobs;
use crate::plan::{self, Harm};
use crate::resource::Fenced;
use crate::target::Target;
use crate::verdict::{Harms, Verdict};
use crate::workers::{WORKERS, Workers, own};
use crate::{mq, time};

/// Deliveries that a worker has at once.
const PREFETCH: usize = 16;
/// A message comes so often, unless too many wait.
const PACE: Duration = Duration::from_millis(20);
const BACKLOG: usize = 300;
/// In percent of the deliveries: their worker dies at a chosen point.
pub(crate) const DOOMED: u64 = 1;
/// The percentage of deliveries that are handled without the executor, and after the end of the lease.
const ROGUE: u64 = 2;
/// And where the others that want the key hold it for long.
const ROGUE_AT_LONG: u64 = 25;

struct Harness {
    namespace: String,
    target: Arc<Target>,
    workers: Workers,
    broker: Broker,
    resource: Fenced,
    dice: Dice,
    keys: BTreeSet<String>,
    sent: u64,
    /// The pending faults of the store.
    jobs: Jobs,
    harms: Harms,
    peace: bool,
}

/// Plays one run.
///
/// # Errors
/// If it cannot be started, or what it is made of does not work.
///
/// # Cancellation
/// Dropping it kills the workers and the servers.
pub async fn run(args: &Args) -> anyhow::Result<Verdict> {
    let folder = tempfile::Builder::new().prefix("idempotent-chaos-").tempdir()?;
    let done = match &args.subject {
        Subject::Store { topology, weakness, .. } => play(args, topology, *weakness, folder.path()).await,
        Subject::Inbox { database, flaw } => crate::inbox::play(args, *database, *flaw, folder.path()).await,
        Subject::Delivery { play, places, flaw } => {
            crate::delivery::play(args, (*play, places, *flaw), folder.path()).await
        }
        Subject::Broker { kind, store, flaw } => mq::play(args, (*kind, store, *flaw), folder.path()).await,
    };
    // The reason is known for a deliberate bug and for a run without faults.
    let expected = args.is_wrong_on_purpose() || args.calm;
    if done.as_ref().is_ok_and(|verdict| verdict.is_good() || expected) {
        return done;
    }
    eprintln!("chaos: what the workers wrote is in {}", folder.keep().display());
    done
}

async fn play(
    args: &Args,
    topology: &Topology,
    weakness: Option<&'static Weakness>,
    folder: &Path,
) -> anyhow::Result<Verdict> {
    let began = Instant::now();
    let target = Arc::new(Target::start(topology, folder)?);
    let faults = if args.calm { plan::Faults::default() } else { target.faults() };
    // A server of the caller may contain records of earlier runs.
    let namespace = format!("chaos{:x}", time::now());
    let template = Template { store: target.url(), weakness, namespace: namespace.clone(), origin: None };
    let (fleet, hears) = Fleet::new(folder, template, args.seed)?;
    let suffering = target.clone();
    let mut harness = Harness {
        namespace,
        target,
        workers: Workers::start(fleet, hears)?,
        broker: Broker::default(),
        resource: Fenced::default(),
        dice: Dice::new(args.seed, 100),
        keys: BTreeSet::new(),
        sent: 0,
        jobs: Jobs::new(move |harm| suffering.suffer(harm)),
        harms: Harms::default(),
        peace: args.calm,
    };
    harness.start().await?;
    let harms = if args.calm { Vec::new() } else { plan::harms(args.seed, WORKERS, args.long, faults) };
    harness.harm(harms, args.long).await?;
    // What is wrong on purpose need not come to an end.
    let patience = if args.is_wrong_on_purpose() { PATIENCE / 10 } else { PATIENCE };
    harness.settle(patience).await?;
    harness.judge(args, faults, began.elapsed()).await
}

/// Into the file that was asked for.
pub(crate) fn keep(args: &Args, history: &History) -> anyhow::Result<()> {
    let Some(file) = &args.history else { return Ok(()) };
    let written = File::create(file).and_then(|file| history.write(std::io::BufWriter::new(file)));
    written.with_context(|| format!("`--history {}`: give a file that can be written", file.display()))
}

impl Harness {
    async fn start(&mut self) -> anyhow::Result<()> {
        let ready = async {
            while !self.workers.is_ready() {
                let heard = self.workers.hear().await?;
                self.hear(heard).await?;
            }
            anyhow::Ok(())
        };
        timeout(PATIENCE, ready).await.context("the workers could not connect to the store")?
    }

    /// The bad times.
    async fn harm(&mut self, harms: Vec<(Duration, Harm)>, long: Duration) -> anyhow::Result<()> {
        let began = Instant::now();
        let mut harms = harms.into_iter().peekable();
        let mut next_message = began;
        while began.elapsed() < long {
            let now = Instant::now();
            while let Some((_, harm)) = harms.next_if(|(at, _)| began + *at <= now) {
                if !self.workers.suffer(harm)? {
                    self.jobs.put(harm);
                }
            }
            while next_message <= now {
                next_message += PACE;
                self.send(now);
            }
            self.turn(next_message).await?;
        }
        Ok(())
    }

    /// Ends the harm and waits until nothing is left to do, or the wait is in vain.
    async fn settle(&mut self, patience: Duration) -> anyhow::Result<()> {
        self.peace = true;
        self.jobs.forget();
        let mut progress = Progress::new(patience);
        while self.is_busy() && !progress.is_in_vain() {
            progress.note(Some(self.broker.left() as u64));
            self.turn(Instant::now() + Duration::from_secs(1)).await?;
        }
        Ok(())
    }

    fn is_busy(&self) -> bool {
        self.broker.left() > 0 || self.workers.resumed().is_some() || !self.jobs.is_idle()
    }

    /// Everything that is due, and then a wait until something is, or `at_most`.
    async fn turn(&mut self, at_most: Instant) -> anyhow::Result<()> {
        let now = Instant::now();
        self.workers.resume(now)?;
        self.broker.put_back_overdue(now);
        self.hand_out(now);
        let due =
            [self.broker.due(), self.workers.resumed(), Some(at_most)].into_iter().flatten().min().unwrap_or(at_most);
        // What is due may have to wait for a worker with a free hand.
        let due = due.max(now + Duration::from_millis(2));
        tokio::select! {
            heard = self.workers.hear() => {
                self.hear(heard?).await?;
                while let Some(heard) = self.workers.heard() {
                    self.hear(heard).await?;
                }
            }
            Some(done) = self.jobs.done() => self.done(&done?),
            () = sleep_until(due) => {}
        }
        Ok(())
    }

    fn send(&mut self, now: Instant) {
        if self.broker.left() >= BACKLOG {
            return;
        }
        self.sent += 1;
        let sent = plan::sent(self.sent, &self.dice);
        if let Ok(key) = Identity::new(Scene::Mq, "chaos", &self.sent).key(&self.namespace) {
            self.workers.note(Kind::Produced, own(), Some(key.as_str()));
            self.keys.insert(key.as_str().to_owned());
            self.broker.send(&sent, now);
        }
    }

    async fn judge(mut self, args: &Args, faults: plan::Faults, took: Duration) -> anyhow::Result<Verdict> {
        self.workers.dismiss().await?;
        if !self.target.is_as_we_left_it(self.harms.failovers) {
            bail!("a primary was replaced that nobody had killed: the machine is too busy for this run to be judged");
        }
        self.harms.pauses = self.workers.pauses;
        let history = self.workers.history(&self.resource, self.keys)?;
        keep(args, &history)?;
        self.harms.redelivered = self.broker.redelivered;
        self.harms.unsettled = self.broker.left() as u64;
        if self.sent == 0 {
            bail!("no message was sent");
        }
        Ok(Verdict::of(args, faults, self.harms, &history, took))
    }
}
