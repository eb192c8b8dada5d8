//! The processes of a play: started, killed, stopped and replaced by their process ids.
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use rustix::process::Signal;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::notes;
use super::wire::{Role, Start};
use crate::deadline::PATIENCE;
use crate::process::{self, was_killed};

pub(super) struct Workers {
    folder: PathBuf,
    start: Start,
    ends: mpsc::UnboundedSender<u32>,
    ended: mpsc::UnboundedReceiver<u32>,
    places: Vec<Process>,
    stopped: Vec<(Instant, u32)>,
    pub(super) kills: u64,
    pub(super) pauses: u64,
    /// Processes that ended without a kill.
    pub(super) by_themselves: Vec<u32>,
}

struct Process {
    id: u32,
    role: Role,
    process: process::Process,
    /// A producer that is done.
    over: bool,
}

impl Workers {
    pub(super) fn start(folder: &Path, start: Start, roles: &[Role]) -> anyhow::Result<Self> {
        let (ends, ended) = mpsc::unbounded_channel();
        let (places, stopped, by_themselves) = (Vec::new(), Vec::new(), Vec::new());
        let folder = folder.to_owned();
        let mut workers = Self { folder, start, ends, ended, places, stopped, kills: 0, pauses: 0, by_themselves };
        for role in roles {
            let process = workers.another(*role)?;
            workers.places.push(process);
        }
        Ok(workers)
    }

    /// The last incarnation there was.
    pub(super) fn last(&self) -> u32 {
        self.start.id
    }

    fn another(&mut self, role: Role) -> io::Result<Process> {
        self.start.id += 1;
        let id = self.start.id;
        (self.start.role, self.start.notes) = (role, notes::file(&self.folder, id));
        let ends = self.ends.clone();
        let hear = move |said: Option<String>| {
            // It says nothing; it is gone when this ends.
            if said.is_none() {
                let _ = ends.send(id);
            }
        };
        let process = process::Process::start("delivery-worker", id, &self.folder, &self.start, hear)?;
        Ok(Process { id, role, process, over: false })
    }

    pub(super) fn kill(&mut self, place: usize) -> io::Result<()> {
        self.places[place].process.signal(Signal::KILL)
    }

    pub(super) fn pause(&mut self, place: usize, long: Duration) -> io::Result<()> {
        let process = &self.places[place];
        if process.over || self.stopped.iter().any(|(_, id)| *id == process.id) {
            return Ok(());
        }
        process.process.signal(Signal::STOP)?;
        self.stopped.push((Instant::now() + long, process.id));
        self.pauses += 1;
        Ok(())
    }

    /// Continues the stopped processes whose time is over.
    pub(super) fn resume(&mut self, now: Instant) -> io::Result<()> {
        for (_, id) in self.stopped.extract_if(.., |(until, _)| *until <= now) {
            if let Some(process) = self.places.iter().find(|process| process.id == id) {
                process.process.signal(Signal::CONT)?;
            }
        }
        Ok(())
    }

    pub(super) fn any_stopped(&self) -> bool {
        !self.stopped.is_empty()
    }

    /// A process that is gone.
    ///
    /// # Cancellation
    /// Nothing is lost.
    pub(super) async fn gone(&mut self) -> anyhow::Result<u32> {
        self.ended.recv().await.context("nobody is left")
    }

    /// Another incarnation takes its place, unless its work is done.
    pub(super) async fn replace(&mut self, id: u32) -> anyhow::Result<()> {
        let Some(place) = self.places.iter().position(|process| process.id == id) else { return Ok(()) };
        let process = &mut self.places[place];
        let status = process.process.reap().await?;
        self.stopped.retain(|(_, stopped)| *stopped != id);
        if self.start.peace && process.role.is_producer() && status.success() {
            process.over = true;
            return Ok(());
        }
        match was_killed(status) {
            true => self.kills += 1,
            false => self.by_themselves.push(id),
        }
        let role = process.role;
        self.places[place] = self.another(role)?;
        Ok(())
    }

    /// Ends the faults: no process kills itself any more, and producers end.
    pub(super) fn peace(&mut self) {
        self.start.peace = true;
        for process in &self.places {
            process.process.tell(&"peace");
        }
    }

    /// Returns whether all producers have ended.
    pub(super) fn all_is_sent(&self) -> bool {
        self.places.iter().all(|process| process.over || !process.role.is_producer())
    }

    /// All end; those that do not are killed, and named.
    pub(super) async fn dismiss(&mut self) -> anyhow::Result<Vec<u32>> {
        let mut stuck = Vec::new();
        for mut process in self.places.drain(..).filter(|process| !process.over) {
            if timeout(PATIENCE / 3, process.process.dismiss()).await.is_err() {
                stuck.push(process.id);
                process.process.signal(Signal::KILL)?;
                process.process.reap().await?;
            }
        }
        Ok(stuck)
    }
}
