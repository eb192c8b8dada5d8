//! Answers that a test has scripted, and that must be used.
use std::collections::VecDeque;
use std::panic::Location;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use idempotent_core::{Claim, Entropy, EntropyError};

use crate::SeededEntropy;
use crate::deliver::fail;

#[derive(Debug, Default)]
pub(in crate::mock) struct Script(Mutex<VecDeque<Line>>);

#[derive(Debug)]
struct Line {
    answer: Claim,
    at: &'static Location<'static>,
}

impl Script {
    pub(super) fn push(&self, answer: Claim, at: &'static Location<'static>) {
        self.lines().push_back(Line { answer, at });
    }

    pub(super) fn next(&self) -> Option<Claim> {
        self.lines().pop_front().map(|line| line.answer)
    }

    fn lines(&self) -> MutexGuard<'_, VecDeque<Line>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A handle of every possible caller: the clones of a mock and of its executor. The last one to be dropped checks for
/// unused answers.
#[derive(Debug)]
pub(in crate::mock) struct Audience(pub(in crate::mock) Arc<Script>);

impl Drop for Audience {
    fn drop(&mut self) {
        let (first, number) = match &*self.0.lines() {
            lines if std::thread::panicking() || lines.is_empty() => return,
            lines => (lines[0].at, lines.len()),
        };
        let claims = if number == 1 { "1 scripted claim was" } else { &*format!("{number} scripted claims were") };
        fail(&format!(
            "{claims} never asked for, the first of {first}: did the delivery go to another executor, or fail before \
             its claim?"
        ));
    }
}

/// The randomness of the executor. Only this part of an executor is dropped with its last clone: store, clock and
/// observer live on in the task of its heartbeat.
#[derive(Debug)]
pub(in crate::mock) struct Attending {
    pub(in crate::mock) entropy: SeededEntropy,
    pub(in crate::mock) _audience: Arc<Audience>,
}

impl Entropy for Attending {
    fn bits(&self) -> Result<u128, EntropyError> {
        self.entropy.bits()
    }
}
