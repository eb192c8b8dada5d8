//! The worker processes: started, killed, stopped; each by its own id.
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;

use crate::weakness::Weakness;
use crate::wire::{News, Order, Origin, Start, line};

/// What is heard of a worker.
#[derive(Debug)]
pub(crate) enum Heard {
    News(News),
    /// Its stdout has ended: so has it.
    Gone,
    /// It says what is no news.
    Nonsense(String),
}

/// What all workers of a run are told alike.
#[derive(Debug)]
pub(crate) struct Template {
    /// The store's URL.
    pub(crate) store: String,
    pub(crate) weakness: Option<&'static Weakness>,
    /// Of their keys.
    pub(crate) namespace: String,
    /// Where their deliveries come from, if not from the harness.
    pub(crate) origin: Option<Origin>,
}

#[derive(Debug)]
pub(crate) struct Fleet {
    /// The program that is a worker if its first argument says so.
    program: PathBuf,
    folder: PathBuf,
    template: Template,
    seed: u64,
    started: u32,
    heard: mpsc::UnboundedSender<(u32, Heard)>,
}

/// A process.
#[derive(Debug)]
pub(crate) struct Process {
    /// Which incarnation.
    pub(crate) id: u32,
    /// It has connected and may be given deliveries.
    pub(crate) ready: bool,
    child: Child,
    orders: mpsc::UnboundedSender<Order>,
}

impl Fleet {
    /// Nobody yet, and an empty resource.
    pub(crate) fn new(
        folder: &Path,
        template: Template,
        seed: u64,
    ) -> io::Result<(Self, mpsc::UnboundedReceiver<(u32, Heard)>)> {
        let (heard, hears) = mpsc::unbounded_channel();
        let (program, folder) = (std::env::current_exe()?, folder.to_owned());
        let fleet = Self { program, folder, template, seed, started: 0, heard };
        File::create(fleet.effects())?;
        Ok((fleet, hears))
    }

    /// Another incarnation.
    pub(crate) fn start(&mut self) -> io::Result<Process> {
        self.started += 1;
        let id = self.started;
        let log = File::create(self.folder.join(format!("worker-{id}.log")))?;
        let mut command = Command::new(&self.program);
        command.arg("worker").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).kill_on_drop(true);
        let mut child = command.spawn()?;
        let (orders, told) = mpsc::unbounded_channel();
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
        if let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) {
            tokio::spawn(order(stdin, line(&start), told));
            tokio::spawn(hear(id, stdout, self.heard.clone()));
        }
        Ok(Process { id, ready: false, child, orders })
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

/// Writes what a worker is told. Only this waits where the worker is stopped and its pipe full.
async fn order(mut stdin: ChildStdin, start: String, mut told: mpsc::UnboundedReceiver<Order>) {
    let mut next = Some(start);
    while let Some(text) = next {
        if stdin.write_all(text.as_bytes()).await.is_err() {
            // Gone; that is heard on its stdout.
            return;
        }
        next = told.recv().await.map(|order| line(&order));
    }
}

async fn hear(id: u32, stdout: ChildStdout, heard: mpsc::UnboundedSender<(u32, Heard)>) {
    let mut lines = BufReader::new(stdout).lines();
    while let Ok(Some(text)) = lines.next_line().await {
        let said = match serde_json::from_str(&text) {
            Ok(news) => Heard::News(news),
            Err(_) => Heard::Nonsense(text),
        };
        if heard.send((id, said)).is_err() {
            return;
        }
    }
    // The harness may be over.
    let _ = heard.send((id, Heard::Gone));
}

impl Process {
    pub(crate) fn tell(&self, order: Order) {
        // Gone; that is heard on its stdout.
        let _ = self.orders.send(order);
    }

    /// Not reaped before [`gone`](Self::gone), so the id is its own.
    fn signal(&self, signal: Signal) -> io::Result<()> {
        let pid = self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        match pid {
            Some(pid) => Ok(kill_process(pid, signal)?),
            None => Ok(()),
        }
    }

    /// SIGKILL.
    pub(crate) fn kill(&self) -> io::Result<()> {
        self.signal(Signal::KILL)
    }

    /// SIGSTOP.
    pub(crate) fn stop(&self) -> io::Result<()> {
        self.signal(Signal::STOP)
    }

    /// SIGCONT.
    pub(crate) fn resume(&self) -> io::Result<()> {
        self.signal(Signal::CONT)
    }

    /// Reaps it; whether it was killed, and not ended by itself.
    pub(crate) async fn gone(mut self) -> io::Result<bool> {
        use std::os::unix::process::ExitStatusExt;
        let status = self.child.wait().await?;
        Ok(status.signal() == Some(Signal::KILL.as_raw()))
    }

    /// Nothing more for it to do: its stdin ends, and so does it.
    pub(crate) async fn dismiss(self) -> io::Result<()> {
        let Self { mut child, orders, .. } = self;
        drop(orders);
        child.wait().await.map(drop)
    }
}
