//! The processes in their places: started, killed, stopped, replaced, each by its own id.
use std::fs::File;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::notes;
use super::wire::{Role, Start};
use crate::crew::PATIENCE;

pub(super) struct Crew {
    program: PathBuf,
    folder: PathBuf,
    start: Start,
    ends: mpsc::UnboundedSender<u32>,
    ended: mpsc::UnboundedReceiver<u32>,
    places: Vec<Process>,
    stopped: Vec<(Instant, u32)>,
    pub(super) kills: u64,
    pub(super) pauses: u64,
    /// What nobody has killed, and what is gone.
    pub(super) by_themselves: Vec<u32>,
}

struct Process {
    id: u32,
    role: Role,
    child: Child,
    /// None once it was told to end.
    stdin: Option<ChildStdin>,
    /// A producer that is done.
    over: bool,
}

impl Crew {
    pub(super) async fn start(folder: &Path, start: Start, roles: &[Role]) -> anyhow::Result<Self> {
        let (ends, ended) = mpsc::unbounded_channel();
        let (program, folder) = (std::env::current_exe()?, folder.to_owned());
        let (places, stopped, by_themselves) = (Vec::new(), Vec::new(), Vec::new());
        let mut crew =
            Self { program, folder, start, ends, ended, places, stopped, kills: 0, pauses: 0, by_themselves };
        for role in roles {
            let process = crew.another(*role).await?;
            crew.places.push(process);
        }
        Ok(crew)
    }

    /// The last incarnation there was.
    pub(super) fn last(&self) -> u32 {
        self.start.id
    }

    async fn another(&mut self, role: Role) -> io::Result<Process> {
        self.start.id += 1;
        let id = self.start.id;
        (self.start.role, self.start.notes) = (role, notes::file(&self.folder, id));
        let log = File::create(self.folder.join(format!("worker-{id}.log")))?;
        let mut command = Command::new(&self.program);
        command.arg("delivery-worker").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).kill_on_drop(true);
        let mut child = command.spawn()?;
        if let Some(mut stdout) = child.stdout.take() {
            let ends = self.ends.clone();
            tokio::spawn(async move {
                // It says nothing; it is gone when this ends.
                let _ = stdout.read_to_end(&mut Vec::new()).await;
                let _ = ends.send(id);
            });
        }
        let mut process = Process { id, role, stdin: child.stdin.take(), child, over: false };
        process.tell(&crate::wire::line(&self.start)).await;
        Ok(process)
    }

    pub(super) fn kill(&mut self, place: usize) -> io::Result<()> {
        self.places[place].signal(Signal::KILL)
    }

    pub(super) fn pause(&mut self, place: usize, long: Duration) -> io::Result<()> {
        let process = &self.places[place];
        if process.over || self.stopped.iter().any(|(_, id)| *id == process.id) {
            return Ok(());
        }
        process.signal(Signal::STOP)?;
        self.stopped.push((Instant::now() + long, process.id));
        self.pauses += 1;
        Ok(())
    }

    /// Those whose time has come go on.
    pub(super) fn resume(&mut self, now: Instant) -> io::Result<()> {
        for (_, id) in self.stopped.extract_if(.., |(until, _)| *until <= now) {
            if let Some(process) = self.places.iter().find(|process| process.id == id) {
                process.signal(Signal::CONT)?;
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
        let status = process.child.wait().await?;
        self.stopped.retain(|(_, stopped)| *stopped != id);
        if self.start.peace && process.role.is_producer() && status.success() {
            process.over = true;
            return Ok(());
        }
        match status.signal() == Some(Signal::KILL.as_raw()) {
            true => self.kills += 1,
            false => self.by_themselves.push(id),
        }
        let role = process.role;
        self.places[place] = self.another(role).await?;
        Ok(())
    }

    /// Nobody dies by its own hand any more, and producers come to an end.
    pub(super) async fn peace(&mut self) {
        self.start.peace = true;
        for process in &mut self.places {
            process.tell("peace\n").await;
        }
    }

    /// Whether all producers are done.
    pub(super) fn all_is_sent(&self) -> bool {
        self.places.iter().all(|process| process.over || !process.role.is_producer())
    }

    /// All end; those that do not are killed, and named.
    pub(super) async fn dismiss(&mut self) -> anyhow::Result<Vec<u32>> {
        let mut stuck = Vec::new();
        for mut process in self.places.drain(..).filter(|process| !process.over) {
            drop(process.stdin.take());
            if timeout(PATIENCE / 3, process.child.wait()).await.is_err() {
                stuck.push(process.id);
                process.child.kill().await?;
            }
        }
        Ok(stuck)
    }
}

impl Process {
    async fn tell(&mut self, text: &str) {
        if let Some(stdin) = &mut self.stdin {
            // Where it is gone, that is heard on its stdout.
            let _ = stdin.write_all(text.as_bytes()).await;
        }
    }

    /// Not reaped before it is [replaced](Crew::replace), so the id is its own.
    fn signal(&self, signal: Signal) -> io::Result<()> {
        let pid = self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        pid.map_or(Ok(()), |pid| Ok(kill_process(pid, signal)?))
    }
}
