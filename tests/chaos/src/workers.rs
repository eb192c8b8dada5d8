//! The worker processes: started, killed, stopped and replaced.
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use idempotent_testkit::history::{Kind, Label, Line};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use crate::deadline::PATIENCE;
use crate::fleet::{Fleet, Heard, Process};
use crate::plan::Harm;
use crate::wire::Order;
use crate::{journal, resource, time};

/// The number of concurrent workers.
pub(crate) const WORKERS: usize = 4;

/// Returns the label of the harness's own lines.
pub(crate) fn own() -> Label {
    Label::Name("harness".to_owned())
}

pub(crate) struct Workers {
    fleet: Fleet,
    hears: mpsc::UnboundedReceiver<(u32, Heard)>,
    pub(crate) places: Vec<Process>,
    /// Stopped incarnations, and until when.
    stopped: Vec<(Instant, u32)>,
    pub(crate) pauses: u64,
    /// The lines of the harness itself.
    pub(crate) lines: Vec<Line>,
}

impl Workers {
    /// Starts a worker in each place. They say when they are ready.
    pub(crate) fn start(mut fleet: Fleet, hears: mpsc::UnboundedReceiver<(u32, Heard)>) -> io::Result<Self> {
        let places = (0..WORKERS).map(|_| fleet.start()).collect::<io::Result<_>>()?;
        Ok(Self { fleet, hears, places, stopped: Vec::new(), pauses: 0, lines: Vec::new() })
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.places.iter().all(|process| process.ready)
    }

    /// Returns the next output of a worker.
    ///
    /// # Cancellation
    /// Safe.
    pub(crate) async fn hear(&mut self) -> anyhow::Result<(u32, Heard)> {
        self.hears.recv().await.context("no worker is left")
    }

    /// Returns an output that has already arrived.
    pub(crate) fn heard(&mut self) -> Option<(u32, Heard)> {
        self.hears.try_recv().ok()
    }

    /// Applies a fault to a worker. Returns false if the fault does not concern workers.
    pub(crate) fn suffer(&mut self, harm: Harm) -> io::Result<bool> {
        match harm {
            // The rest when it is gone.
            Harm::Kill(place) => self.places[place].kill()?,
            Harm::Pause(place, long) => self.pause(place, long)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn pause(&mut self, place: usize, long: Duration) -> io::Result<()> {
        let process = &self.places[place];
        let id = process.id;
        if self.stopped.iter().any(|(_, stopped)| *stopped == id) || !process.ready {
            return Ok(());
        }
        process.stop()?;
        self.stopped.push((Instant::now() + long, id));
        self.pauses += 1;
        self.note(Kind::Paused, id, None);
        Ok(())
    }

    /// Continues the stopped workers whose time is over.
    pub(crate) fn resume(&mut self, now: Instant) -> io::Result<()> {
        let due: Vec<_> = self.stopped.iter().filter(|(until, _)| *until <= now).map(|(_, id)| *id).collect();
        self.stopped.retain(|(until, _)| *until > now);
        for id in due {
            // Killed meanwhile, it goes on no more.
            let Some(process) = self.places.iter().find(|process| process.id == id) else { continue };
            process.resume()?;
            self.note(Kind::Resumed, id, None);
        }
        Ok(())
    }

    /// Continues a stopped worker at this time, unless it continues earlier.
    pub(crate) fn resume_by(&mut self, id: u32, time: Instant) {
        for (until, _) in self.stopped.iter_mut().filter(|(_, stopped)| *stopped == id) {
            *until = time.min(*until);
        }
    }

    /// Returns the time at which the next stopped worker continues.
    pub(crate) fn resumed(&self) -> Option<Instant> {
        self.stopped.iter().map(|(until, _)| *until).min()
    }

    /// Another incarnation takes the place; which one was there, and whether it was killed.
    pub(crate) async fn gone(&mut self, place: usize) -> anyhow::Result<(u32, bool)> {
        let other = self.fleet.start()?;
        let process = std::mem::replace(&mut self.places[place], other);
        let id = process.id;
        let killed = process.gone().await?;
        self.stopped.retain(|(_, stopped)| *stopped != id);
        self.note(Kind::Crash, id, None);
        Ok((id, killed))
    }

    /// In which place it is, unless another has taken that.
    pub(crate) fn place(&self, id: u32) -> Option<usize> {
        self.places.iter().position(|process| process.id == id)
    }

    pub(crate) fn tell_all(&self, order: &Order) {
        self.places.iter().for_each(|process| process.tell(order));
    }

    pub(crate) fn note(&mut self, event: Kind, worker: impl Into<Label>, key: Option<&str>) {
        self.lines.push(Line { key: key.map(str::to_owned), ..Line::new(time::now(), worker, event) });
    }

    /// Nothing more for anybody to do: all end.
    pub(crate) async fn dismiss(&mut self) -> anyhow::Result<()> {
        for process in self.places.drain(..) {
            let id = process.id;
            let ended = timeout(PATIENCE, process.dismiss()).await;
            ended.with_context(|| format!("worker {id} does not end"))??;
        }
        Ok(())
    }

    /// Returns the histories of all workers, and the effects on these keys in the resources.
    pub(crate) fn history(
        mut self,
        fenced: &resource::Fenced,
        keys: impl IntoIterator<Item = String>,
    ) -> anyhow::Result<idempotent_testkit::history::History> {
        self.lines.extend(resource::truth(fenced, &self.fleet.effects(), keys, time::now(), &own())?);
        let parts: Vec<PathBuf> = self.fleet.parts();
        journal::merge(parts.iter().map(AsRef::as_ref), self.lines)
    }
}
