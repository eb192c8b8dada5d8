//! The worker processes of a store and of a broker.
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use tokio::sync::mpsc;

use crate::broken_stores::Weakness;
use crate::process::{self, was_killed};
use crate::wire::{News, Order, Origin, Start};

/// The output of a worker.
#[derive(Debug)]
pub(crate) enum Heard {
    News(News),
    /// Its stdout has ended: so has it.
    Gone,
    /// A line that is not a message.
    Nonsense(String),
}

/// The settings that all workers of a run share.
#[derive(Debug)]
pub(crate) struct Template {
    /// The store's URL.
    pub(crate) store: String,
    pub(crate) weakness: Option<&'static Weakness>,
    /// The namespace of the keys.
    pub(crate) namespace: String,
    /// The source of the deliveries, if the harness does not send them.
    pub(crate) origin: Option<Origin>,
}

#[derive(Debug)]
pub(crate) struct Fleet {
    folder: PathBuf,
    template: Template,
    seed: u64,
    started: u32,
    heard: mpsc::UnboundedSender<(u32, Heard)>,
}

/// A process.
#[derive(Debug)]
pub(crate) struct Process {
    /// The number of the incarnation.
    pub(crate) id: u32,
    /// True if the worker is connected and accepts deliveries.
    pub(crate) ready: bool,
    process: process::Process,
}

impl Fleet {
    /// Creates a fleet without workers, and an empty resource.
    pub(crate) fn new(
        folder: &Path,
        template: Template,
        seed: u64,
    ) -> io::Result<(Self, mpsc::UnboundedReceiver<(u32, Heard)>)> {
        let (heard, hears) = mpsc::unbounded_channel();
        let fleet = Self { folder: folder.to_owned(), template, seed, started: 0, heard };
        File::create(fleet.effects())?;
        Ok((fleet, hears))
    }

    /// Another incarnation.
    pub(crate) fn start(&mut self) -> io::Result<Process> {
        self.started += 1;
        let id = self.started;
        let start = Start {
            worker: id,
            seed: self.seed,
            store: self.template.store.clone(),
            weakness: self.template.weakness.map(|weakness| weakness.name.to_owned()),
            namespace: self.template.namespace.clone(),
            origin: self.template.origin.clone(),
            history: self.part(id),
            effects: self.effects(),
        };
        let heard = self.heard.clone();
        let hear = move |said: Option<String>| {
            let said =
                said.map_or(Heard::Gone, |text| serde_json::from_str(&text).map_or(Heard::Nonsense(text), Heard::News));
            // The harness may be over.
            let _ = heard.send((id, said));
        };
        let process = process::Process::start("worker", id, &self.folder, &start, hear)?;
        Ok(Process { id, ready: false, process })
    }

    /// The history of an incarnation.
    fn part(&self, id: u32) -> PathBuf {
        self.folder.join(format!("worker-{id}.jsonl"))
    }

    /// The histories of all that have written one.
    pub(crate) fn parts(&self) -> Vec<PathBuf> {
        (1..=self.started).map(|id| self.part(id)).filter(|part| part.exists()).collect()
    }

    /// The resource that all append to.
    pub(crate) fn effects(&self) -> PathBuf {
        self.folder.join("effects.jsonl")
    }
}

impl Process {
    pub(crate) fn tell(&self, order: &Order) {
        self.process.tell(order);
    }

    /// SIGKILL.
    pub(crate) fn kill(&self) -> io::Result<()> {
        self.process.signal(Signal::KILL)
    }

    /// SIGSTOP.
    pub(crate) fn stop(&self) -> io::Result<()> {
        self.process.signal(Signal::STOP)
    }

    /// SIGCONT.
    pub(crate) fn resume(&self) -> io::Result<()> {
        self.process.signal(Signal::CONT)
    }

    /// Reaps it; whether it was killed, and not ended by itself.
    pub(crate) async fn gone(mut self) -> io::Result<bool> {
        self.process.reap().await.map(was_killed)
    }

    /// Nothing more for it to do: its stdin ends, and so does it.
    pub(crate) async fn dismiss(mut self) -> io::Result<()> {
        self.process.dismiss().await.map(drop)
    }
}
