//! The task that sends alerts.
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use super::dispatch::Shared;
use super::groups::Due;
use super::{Alert, AlertError, AlertSender, send_guarded};
use crate::clock::{before, pause};
use crate::panic_guard::catch_panic;

/// A sender that does not answer in this time has failed.
const ANSWER: Duration = Duration::from_secs(10);
/// Pauses between the tries of one alert.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(10)];

/// Starts the task on a separate thread, or on this runtime if the clock does not show real time.
pub(super) fn start(shared: Arc<Shared>) -> Result<(), String> {
    if !shared.clock.is_real_time() {
        let none = |_| "the clock does not show real time, and there is no tokio runtime here to run on".to_owned();
        drop(Handle::try_current().map_err(none)?.spawn(run(shared)));
        return Ok(());
    }
    let (ready, started) = mpsc::channel();
    let serve = move || match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => {
            let _ = ready.send(Ok(()));
            runtime.block_on(run(shared));
        }
        Err(error) => drop(ready.send(Err(format!("no runtime for them: {error}")))),
    };
    let spawned = thread::Builder::new().name("idempotent-alerts".to_owned()).spawn(serve);
    spawned.map_err(|error| format!("no thread for them: {error}"))?;
    started.recv().unwrap_or_else(|_| Err("their thread has ended".to_owned()))
}

/// The next step of the task.
enum Step {
    Send(Due),
    /// Sends all of these, and answers those that wait for that.
    Flush(Vec<Due>, Vec<oneshot::Sender<()>>),
    Wait(Option<Instant>),
    End(Vec<Due>),
}

async fn run(shared: Arc<Shared>) {
    loop {
        match shared.step() {
            Step::Send(due) => shared.send(due).await,
            Step::Flush(all, flushes) => {
                shared.send_all(all).await;
                for flush in flushes {
                    let _ = flush.send(());
                }
            }
            Step::Wait(None) => shared.wake.notified().await,
            Step::Wait(Some(until)) => drop(before(&*shared.clock, until, shared.wake.notified()).await),
            Step::End(all) => return shared.send_all(all).await,
        }
    }
}

impl Shared {
    fn step(&self) -> Step {
        let now = self.clock.now();
        let mut state = self.state();
        if state.closed {
            return Step::End(state.groups.take_all(now));
        }
        if !state.flushes.is_empty() {
            let flushes = std::mem::take(&mut state.flushes);
            return Step::Flush(state.groups.take_all(now), flushes);
        }
        match state.groups.take(now) {
            Some(due) => Step::Send(due),
            None => Step::Wait(state.groups.next()),
        }
    }

    async fn send_all(&self, all: Vec<Due>) {
        for due in all {
            self.send(due).await;
        }
    }

    async fn send(&self, Due { alert, waiting }: Due) {
        let sent = join_all(self.senders.iter().map(|sender| self.insist(&**sender, &alert))).await;
        let accepted = sent.into_iter().all(|sent| sent);
        let sum = if accepted { &self.sums.sent } else { &self.sums.failed };
        sum.fetch_add(1, Ordering::Relaxed);
        for caller in waiting {
            let _ = caller.send(accepted);
        }
    }

    /// Returns whether the sender has accepted the alert.
    async fn insist(&self, sender: &dyn AlertSender, alert: &Alert) -> bool {
        let mut pauses = PAUSES.iter();
        loop {
            let Err(error) = self.attempt(sender, alert).await else { return true };
            let kind = alert.kind.name();
            let sender = catch_panic("alert sender", || format!("{sender:?}"));
            let Some(rest) = pauses.next() else {
                tracing::error!(target: "idempotent", kind, %error, sender, "an alert is lost: its sender failed every time");
                return false;
            };
            tracing::warn!(target: "idempotent", kind, %error, sender, "an alert was not sent, and is tried again");
            pause(&*self.clock, *rest).await;
        }
    }

    async fn attempt(&self, sender: &dyn AlertSender, alert: &Alert) -> Result<(), AlertError> {
        let sent = before(&*self.clock, self.clock.now() + ANSWER, send_guarded(sender, alert)).await;
        sent.unwrap_or_else(|| Err(AlertError::new("no answer within 10 s")))
    }
}
