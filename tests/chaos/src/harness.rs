//! One run: servers and workers are started, harmed for a while, left in peace until everything has come to an end,
//! and judged.
mod events;

use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use idempotent::{Identity, Scene};
use idempotent_testkit::history::{Kind, Label, Line};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use crate::args::Args;
use crate::broker::Broker;
use crate::dice::Dice;
use crate::fleet::{Fleet, Heard, Process};
use crate::plan::{self, Harm};
use crate::resource::{self, Fenced};
use crate::target::{Done, Target};
use crate::verdict::{Harms, Verdict};
use crate::{journal, time};

const WORKERS: usize = 4;
/// Deliveries that a worker has at once.
const PREFETCH: usize = 16;
/// A message comes so often, unless too many wait.
const PACE: Duration = Duration::from_millis(20);
const BACKLOG: usize = 300;
/// In percent of the deliveries: their worker dies at a chosen point.
const DOOMED: u64 = 1;
/// In percent of the deliveries: what takes them is no executor of ours, and goes on behind the end of its lease.
const ROGUE: u64 = 2;
/// And where the others that want the key hold it for long.
const ROGUE_AT_LONG: u64 = 25;
/// Far longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// Who writes the harness's own lines.
fn own() -> Label {
    Label::Name("harness".to_owned())
}

struct Harness {
    namespace: String,
    target: Arc<Target>,
    fleet: Fleet,
    hears: mpsc::UnboundedReceiver<(u32, Heard)>,
    places: Vec<Process>,
    broker: Broker,
    resource: Fenced,
    dice: Dice,
    lines: Vec<Line>,
    keys: BTreeSet<String>,
    sent: u64,
    /// Stopped incarnations, and until when.
    stopped: Vec<(Instant, u32)>,
    /// What is being done to the store.
    jobs: JoinSet<anyhow::Result<Done>>,
    /// And what is to be done to it next.
    queued: VecDeque<Harm>,
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
    let done = play(args, folder.path()).await;
    if done.as_ref().is_ok_and(Verdict::is_good) {
        return done;
    }
    eprintln!("chaos: what the workers wrote is in {}", folder.keep().display());
    done
}

async fn play(args: &Args, folder: &Path) -> anyhow::Result<Verdict> {
    let began = Instant::now();
    let target = Arc::new(Target::start(&args.topology, folder)?);
    let faults = if args.calm { plan::Faults::default() } else { target.faults() };
    let (fleet, hears) = Fleet::new(folder, &target.url(), args.weakness, args.seed)?;
    File::create(fleet.effects())?;
    let mut harness = Harness {
        // A server of somebody else's remembers earlier runs.
        namespace: format!("chaos{:x}", time::now()),
        target,
        fleet,
        hears,
        places: Vec::new(),
        broker: Broker::default(),
        resource: Fenced::default(),
        dice: Dice::new(args.seed, 100),
        lines: Vec::new(),
        keys: BTreeSet::new(),
        sent: 0,
        stopped: Vec::new(),
        jobs: JoinSet::new(),
        queued: VecDeque::new(),
        harms: Harms::default(),
        peace: args.calm,
    };
    harness.start().await?;
    let harms = if args.calm { Vec::new() } else { plan::harms(args.seed, WORKERS, args.long, faults) };
    harness.harm(harms, args.long).await?;
    // What is wrong on purpose need not come to an end.
    let patience = if args.weakness.is_some() { PATIENCE / 10 } else { PATIENCE };
    harness.settle(patience).await?;
    harness.judge(args, faults, began.elapsed()).await
}

impl Harness {
    async fn start(&mut self) -> anyhow::Result<()> {
        for _ in 0..WORKERS {
            let process = self.fleet.start(&self.namespace)?;
            self.places.push(process);
        }
        let ready = async {
            while !self.places.iter().all(|process| process.ready) {
                let heard = self.hears.recv().await.context("no worker is left")?;
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
                self.suffer(harm)?;
            }
            while next_message <= now {
                next_message += PACE;
                self.send(now);
            }
            self.turn(next_message).await?;
        }
        Ok(())
    }

    /// Peace, until there is nothing left to do or nobody could still be patient.
    async fn settle(&mut self, patience: Duration) -> anyhow::Result<()> {
        self.peace = true;
        self.queued.clear();
        let until = Instant::now() + patience;
        while (self.broker.left() > 0 || !self.stopped.is_empty() || !self.jobs.is_empty()) && Instant::now() < until {
            self.turn(until).await?;
        }
        Ok(())
    }

    /// Everything that is due, and then a wait until something is, or `at_most`.
    async fn turn(&mut self, at_most: Instant) -> anyhow::Result<()> {
        let now = Instant::now();
        self.resume(now)?;
        self.broker.put_back_overdue(now);
        self.hand_out(now);
        let resumed = self.stopped.iter().map(|(until, _)| *until).min();
        let due = [self.broker.due(), resumed, Some(at_most)].into_iter().flatten().min().unwrap_or(at_most);
        // What is due may have to wait for a worker with a free hand.
        let due = due.max(now + Duration::from_millis(2));
        tokio::select! {
            heard = self.hears.recv() => {
                self.hear(heard.context("no worker is left")?).await?;
                while let Ok(heard) = self.hears.try_recv() {
                    self.hear(heard).await?;
                }
            }
            Some(done) = self.jobs.join_next() => self.done(done??),
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
            self.note(Kind::Produced, own(), Some(key.as_str()));
            self.keys.insert(key.as_str().to_owned());
            self.broker.send(&sent, now);
        }
    }

    fn note(&mut self, event: Kind, worker: impl Into<Label>, key: Option<&str>) {
        self.lines.push(Line { key: key.map(str::to_owned), ..Line::new(time::now(), worker, event) });
    }

    async fn judge(mut self, args: &Args, faults: plan::Faults, took: Duration) -> anyhow::Result<Verdict> {
        for process in self.places.drain(..) {
            let id = process.id;
            let ended = timeout(PATIENCE, process.dismiss()).await;
            ended.with_context(|| format!("worker {id} does not end"))??;
        }
        if !self.target.is_as_we_left_it(self.harms.failovers) {
            bail!("a primary was replaced that nobody had killed: the machine is too busy for this run to be judged");
        }
        let truth = resource::truth(&self.resource, &self.fleet.effects(), self.keys, time::now(), &own())?;
        self.lines.extend(truth);
        let parts = self.fleet.parts();
        let history = journal::merge(parts.iter().map(AsRef::as_ref), self.lines)?;
        if let Some(file) = &args.history {
            let written = File::create(file).and_then(|file| history.write(std::io::BufWriter::new(file)));
            written.with_context(|| format!("`--history {}`: give a file that can be written", file.display()))?;
        }
        self.harms.redelivered = self.broker.redelivered;
        self.harms.unsettled = self.broker.left() as u64;
        if self.sent == 0 {
            bail!("no message was sent");
        }
        Ok(Verdict::of(args, faults, self.harms, &history, took))
    }
}
