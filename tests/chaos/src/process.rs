//! The process of a worker: its start, messages, signals and end. Messages in both directions are JSON objects, one in
//! a line.
use std::fs::File;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines, Stdin};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

use crate::wire::line;

/// A process, as the harness has it.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    /// The sender of messages, or `None` after the end of stdin.
    orders: Option<mpsc::UnboundedSender<String>>,
}

impl Process {
    /// Starts this program as a worker of this kind. `hear` is called with each line that it says, and with `None` when its
    /// stdout has ended: so has the process.
    pub(crate) fn start(
        kind: &str,
        id: u32,
        folder: &Path,
        start: &impl Serialize,
        hear: impl Fn(Option<String>) + Send + 'static,
    ) -> io::Result<Self> {
        let log = File::create(folder.join(format!("worker-{id}.log")))?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(kind).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).kill_on_drop(true);
        let mut child = command.spawn()?;
        let (orders, mut told) = mpsc::unbounded_channel::<String>();
        if let (Some(mut stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) {
            tokio::spawn(async move {
                // Only this waits where the worker is stopped and its pipe full.
                while let Some(text) = told.recv().await {
                    if stdin.write_all(text.as_bytes()).await.is_err() {
                        // Gone; that is heard on its stdout.
                        return;
                    }
                }
            });
            tokio::spawn(async move {
                let mut lines = BufReader::new(stdout).lines();
                while let Ok(Some(text)) = lines.next_line().await {
                    hear(Some(text));
                }
                hear(None);
            });
        }
        let process = Self { child, orders: Some(orders) };
        process.tell(start);
        Ok(process)
    }

    pub(crate) fn tell(&self, order: &impl Serialize) {
        // Where it is gone, that is heard on its stdout.
        let _ = self.orders.as_ref().map(|orders| orders.send(line(order)));
    }

    /// Sends a signal; without effect once it was reaped.
    pub(crate) fn signal(&self, signal: Signal) -> io::Result<()> {
        let pid = self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        pid.map_or(Ok(()), |pid| Ok(kill_process(pid, signal)?))
    }

    /// Reaps it once it has ended.
    pub(crate) async fn reap(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Ends its stdin, which ends the process, and reaps it.
    pub(crate) async fn dismiss(&mut self) -> io::Result<ExitStatus> {
        self.orders = None;
        self.reap().await
    }
}

/// Returns whether a signal killed the process.
pub(crate) fn was_killed(status: ExitStatus) -> bool {
    status.signal() == Some(Signal::KILL.as_raw())
}

/// The messages to a worker, line by line.
pub(crate) type Orders = Lines<BufReader<Stdin>>;

/// Reads the first message of this process. Returns `None` at the end of stdin.
pub(crate) async fn begin<Start: DeserializeOwned>() -> anyhow::Result<Option<(Start, Orders)>> {
    // A stopped worker must not outlive a harness that was killed.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    let mut orders = BufReader::new(tokio::io::stdin()).lines();
    let Some(start) = orders.next_line().await? else { return Ok(None) };
    Ok(Some((serde_json::from_str(&start).context("its first line")?, orders)))
}

/// Reads the next order; `None` once stdin has ended.
///
/// # Cancellation
/// Nothing is lost.
pub(crate) async fn next<Order: DeserializeOwned>(orders: &mut Orders) -> anyhow::Result<Option<Order>> {
    let Some(order) = orders.next_line().await? else { return Ok(None) };
    serde_json::from_str(&order).with_context(|| order.clone()).map(Some)
}

/// Writes to stdout what is sent here.
pub(crate) fn news<News: Serialize + Send + 'static>() -> mpsc::UnboundedSender<News> {
    let (news, mut told) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut out = tokio::io::stdout();
        while let Some(news) = told.recv().await {
            if out.write_all(line(&news).as_bytes()).await.is_err() || out.flush().await.is_err() {
                // The harness is gone.
                return;
            }
        }
    });
    news
}
