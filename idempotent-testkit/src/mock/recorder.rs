//! An observer that logs the end of each delivery.
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use idempotent_core::{Event, FencingToken, Key, Observer, Outcome, RunInfo, Scene};

use crate::deliver::note;

/// A delivery that has ended, in the log of a [`MockExecutor`](crate::MockExecutor).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EndedDelivery {
    /// The scene of the handler.
    pub scene: Scene,
    /// The scope of the handler.
    pub scope: String,
    /// The hashed key, as [`Identity::key`](idempotent_core::Identity::key) returns it; `None` if the key was invalid.
    pub key: Option<Key>,
    /// The attempt; `None` if the key was not granted.
    pub attempt: Option<u32>,
    /// The fencing token of the grant; `None` if the key was not granted.
    pub fencing: Option<FencingToken>,
    /// Whether the run took over from a worker whose lease had expired.
    pub took_over: bool,
    /// The outcome.
    pub outcome: Outcome,
    /// The duration from the call to its end, by the mock's clock.
    pub elapsed: Duration,
}

impl fmt::Display for EndedDelivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.scope, self.outcome.name())?;
        if let Some(attempt) = self.attempt {
            write!(f, ", attempt {attempt}")?;
        }
        if self.took_over {
            f.write_str(", took over")?;
        }
        match &self.key {
            Some(key) => write!(f, ", {key}"),
            None => f.write_str(", no usable key"),
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Recorder(Arc<Mutex<Notes>>);

#[derive(Debug, Default)]
struct Notes {
    /// Grants in flight, and whether they are takeovers. The claim reports this, and the log entry needs it at the end.
    took_over: HashMap<(Key, FencingToken), bool>,
    ended: Vec<EndedDelivery>,
}

impl Recorder {
    pub(super) fn ended(&self) -> Vec<EndedDelivery> {
        self.notes().ended.clone()
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Recorder {
    fn on(&self, run: &RunInfo<'_>, event: &Event<'_>) {
        let grant = run.key.cloned().zip(run.fencing);
        match event {
            Event::Claimed { taken_over } => {
                if let Some(grant) = grant {
                    self.notes().took_over.insert(grant, taken_over.is_some());
                }
            }
            Event::Ended { outcome, elapsed } => {
                note(outcome);
                let mut notes = self.notes();
                let took_over = grant.is_some_and(|grant| notes.took_over.remove(&grant).unwrap_or_default());
                notes.ended.push(EndedDelivery {
                    scene: run.scene.clone(),
                    scope: run.scope.to_owned(),
                    key: run.key.cloned(),
                    attempt: run.attempt,
                    fencing: run.fencing,
                    took_over,
                    outcome: (*outcome).clone(),
                    elapsed: *elapsed,
                });
            }
            _ => {}
        }
    }
}
