//! The worker processes, each killed and stopped by its own id.
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

use super::wire::{Deliver, News, Start};
use crate::wire::line;

/// A process in its place.
pub(super) struct Process {
    pub(super) id: u32,
    pub(super) ready: bool,
    child: Child,
    orders: mpsc::UnboundedSender<String>,
}

/// What is heard of a worker: news, or that it is gone.
pub(super) type Heard = (u32, Option<News>);

pub(super) struct Crew {
    program: PathBuf,
    folder: PathBuf,
    start: Start,
    heard: mpsc::UnboundedSender<Heard>,
    hears: mpsc::UnboundedReceiver<Heard>,
    pub(super) places: Vec<Process>,
}

impl Crew {
    pub(super) fn start(folder: &Path, start: Start, places: usize) -> anyhow::Result<Self> {
        let (heard, hears) = mpsc::unbounded_channel();
        let (program, folder) = (std::env::current_exe()?, folder.to_owned());
        let mut crew = Self { program, folder, start, heard, hears, places: Vec::new() };
        for _ in 0..places {
            let process = crew.another()?;
            crew.places.push(process);
        }
        Ok(crew)
    }

    fn another(&mut self) -> io::Result<Process> {
        self.start.worker += 1;
        let id = self.start.worker;
        let log = File::create(self.folder.join(format!("worker-{id}.log")))?;
        let mut command = Command::new(&self.program);
        command.arg("inbox-worker").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).kill_on_drop(true);
        let mut child = command.spawn()?;
        let (orders, mut told) = mpsc::unbounded_channel::<String>();
        if let (Some(mut stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) {
            tokio::spawn(async move {
                // Where it is gone, that is heard on its stdout.
                while let Some(text) = told.recv().await {
                    if stdin.write_all(text.as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
            let heard = self.heard.clone();
            tokio::spawn(async move {
                let mut lines = BufReader::new(stdout).lines();
                while let Ok(Some(text)) = lines.next_line().await {
                    // A line that was cut off by its writer's death is none.
                    if let Ok(news) = serde_json::from_str(&text) {
                        let _ = heard.send((id, Some(news)));
                    }
                }
                let _ = heard.send((id, None));
            });
        }
        let process = Process { id, ready: false, child, orders };
        process.tell(line(&self.start));
        Ok(process)
    }

    /// What a worker says next.
    ///
    /// # Cancellation
    /// Nothing is lost.
    pub(super) async fn hear(&mut self) -> anyhow::Result<Heard> {
        self.hears.recv().await.context("no worker is left")
    }

    /// Another incarnation takes the place; whether the one that was there was killed.
    pub(super) async fn replace(&mut self, place: usize) -> anyhow::Result<bool> {
        let other = self.another()?;
        let mut gone = std::mem::replace(&mut self.places[place], other);
        use std::os::unix::process::ExitStatusExt;
        Ok(gone.child.wait().await?.signal() == Some(Signal::KILL.as_raw()))
    }

    /// In which place it is, unless another has taken that.
    pub(super) fn place(&self, id: u32) -> Option<usize> {
        self.places.iter().position(|process| process.id == id)
    }
}

impl Process {
    fn tell(&self, text: String) {
        let _ = self.orders.send(text);
    }

    pub(super) fn deliver(&self, order: &Deliver) {
        self.tell(line(order));
    }

    /// Not reaped before it is [replaced](Crew::replace), so the id is its own.
    pub(super) fn signal(&self, signal: Signal) -> io::Result<()> {
        let pid = self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        pid.map_or(Ok(()), |pid| Ok(kill_process(pid, signal)?))
    }
}
