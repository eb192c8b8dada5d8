//! A history in memory.
use std::sync::Mutex;
use std::time::Instant;

use idempotent_testkit::history::{History, Journal, Line};

/// The lines of a history. A line that is removed leaves a gap, so that the places of the others stay.
#[derive(Debug)]
pub(super) struct Lines {
    since: Instant,
    lines: Mutex<Vec<Option<Line>>>,
}

impl Lines {
    pub(super) fn new() -> Self {
        Self { since: Instant::now(), lines: Mutex::default() }
    }

    /// Returns the history so far.
    pub(super) fn history(&self) -> History {
        History::new(self.lines.lock().unwrap().iter().flatten().cloned().collect())
    }
}

impl Journal for Lines {
    fn now(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_nanos()).unwrap()
    }

    fn begin(&self, unheard: &Line) -> u64 {
        let mut lines = self.lines.lock().unwrap();
        lines.push(Some(unheard.clone()));
        (lines.len() - 1).try_into().unwrap()
    }

    fn end(&self, call: u64, heard: Option<&Line>) {
        self.lines.lock().unwrap()[usize::try_from(call).unwrap()] = heard.cloned();
    }

    fn event(&self, line: &Line) {
        self.lines.lock().unwrap().push(Some(line.clone()));
    }
}
