//! The worker processes, each killed and stopped by its own id.
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context;
use rustix::process::Signal;
use tokio::sync::mpsc;

use super::wire::{Deliver, News, Start};
use crate::process::{self, was_killed};

/// A process in its place.
pub(super) struct Process {
    pub(super) id: u32,
    pub(super) ready: bool,
    process: process::Process,
}

/// The output of a worker, or `None` at its end.
pub(super) type Heard = (u32, Option<News>);

pub(super) struct Workers {
    folder: PathBuf,
    start: Start,
    heard: mpsc::UnboundedSender<Heard>,
    hears: mpsc::UnboundedReceiver<Heard>,
    pub(super) places: Vec<Process>,
}

impl Workers {
    pub(super) fn start(folder: &Path, start: Start, places: usize) -> anyhow::Result<Self> {
        let (heard, hears) = mpsc::unbounded_channel();
        let mut workers = Self { folder: folder.to_owned(), start, heard, hears, places: Vec::new() };
        for _ in 0..places {
            let process = workers.another()?;
            workers.places.push(process);
        }
        Ok(workers)
    }

    fn another(&mut self) -> io::Result<Process> {
        self.start.worker += 1;
        let id = self.start.worker;
        let heard = self.heard.clone();
        let hear = move |said: Option<String>| {
            let news = said.map(|text| serde_json::from_str(&text)).transpose();
            // A line that was cut off by its writer's death is none.
            let _ = news.map(|news| heard.send((id, news)));
        };
        let process = process::Process::start("inbox-worker", id, &self.folder, &self.start, hear)?;
        Ok(Process { id, ready: false, process })
    }

    /// Returns the next output of a worker.
    ///
    /// # Cancellation
    /// Safe.
    pub(super) async fn hear(&mut self) -> anyhow::Result<Heard> {
        self.hears.recv().await.context("no worker is left")
    }

    /// Another incarnation takes the place; whether the one that was there was killed.
    pub(super) async fn replace(&mut self, place: usize) -> anyhow::Result<bool> {
        let other = self.another()?;
        let mut gone = std::mem::replace(&mut self.places[place], other);
        Ok(was_killed(gone.process.reap().await?))
    }

    /// In which place it is, unless another has taken that.
    pub(super) fn place(&self, id: u32) -> Option<usize> {
        self.places.iter().position(|process| process.id == id)
    }
}

impl Process {
    pub(super) fn deliver(&self, order: &Deliver) {
        self.process.tell(order);
    }

    pub(super) fn signal(&self, signal: Signal) -> io::Result<()> {
        self.process.signal(signal)
    }
}
