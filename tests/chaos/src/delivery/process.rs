//! The context of each process of a play: notes, random numbers, and exits.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use idempotent::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::notes::Notes;
use super::wire::Start;
use crate::dice::Dice;
use crate::dying_store::die;
use crate::process::Orders;

/// A point at which a process kills itself.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Point {
    Registering,
    BeforeSend,
    AtSending,
    AfterSend,
    AfterAlarm,
    AfterTake,
    BeforeEffect,
    InTransaction,
    AfterEffect,
    AtCommit,
    BeforeSettling,
    AtSettling,
}

/// In the notes, before it dies.
#[derive(Deserialize, Serialize)]
pub(super) struct Dies {
    pub(super) dies: Point,
}

pub(super) struct ProcessContext {
    pub(super) start: Start,
    pub(super) notes: Notes,
    pub(super) dice: Dice,
    peace: Arc<AtomicBool>,
}

/// Ends when stdin does.
pub(super) type Stop = watch::Receiver<bool>;

/// The probability of a kill at each point, in percent.
pub(super) const DOOMED: u64 = 1;

impl ProcessContext {
    pub(super) fn start(start: Start, mut lines: Orders) -> anyhow::Result<(Arc<Self>, Stop)> {
        let peace = Arc::new(AtomicBool::new(start.peace));
        let notes = Notes::create(&start.notes)?;
        let dice = Dice::new(start.seed, 1_000 + u64::from(start.id));
        let (ends, ended) = watch::channel(false);
        let heard = peace.clone();
        tokio::spawn(async move {
            while let Ok(Some(_)) = lines.next_line().await {
                heard.store(true, Ordering::Relaxed);
            }
            ends.send_replace(true);
        });
        Ok((Arc::new(Self { start, notes, dice, peace }), ended))
    }

    pub(super) fn is_peace(&self) -> bool {
        self.peace.load(Ordering::Relaxed)
    }

    /// Kills this process with the usual probability.
    pub(super) fn may_die(&self, at: Point) {
        self.may_die_with(DOOMED, at);
    }

    /// Kills this process with a probability in percent.
    pub(super) fn may_die_with(&self, doomed: u64, at: Point) {
        if !self.is_peace() && self.dice.percent(doomed) {
            self.notes.write(&Dies { dies: at });
            die();
        }
    }

    /// Kills this process during the call with the usual probability.
    pub(super) async fn may_die_in<T>(&self, at: Point, call: impl Future<Output = T>) -> T {
        self.may_die_in_with(DOOMED, at, call).await
    }

    /// Kills this process during the call with a probability in percent.
    pub(super) async fn may_die_in_with<T>(&self, doomed: u64, at: Point, call: impl Future<Output = T>) -> T {
        if self.is_peace() || !self.dice.percent(doomed) {
            return call.await;
        }
        self.notes.write(&Dies { dies: at });
        tokio::select! {
            biased;
            _ = call => {}
            () = tokio::time::sleep(Duration::from_micros(self.dice.below(3_000))) => {}
        }
        die()
    }
}

/// The clock that a server of this machine goes by, too.
pub(super) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

/// Waits for the stop signal.
pub(super) async fn stopped(mut stop: Stop) {
    // Dropped, it means the same.
    let _ = stop.wait_for(|stopped| *stopped).await;
}
