//! The duration of each test binary.
use std::mem;
use std::time::{Duration, Instant};

/// Shorter binaries are not printed.
const LONG: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(super) struct Pace {
    running: Option<(String, Instant)>,
    lasted: Vec<(Duration, String)>,
}

impl Pace {
    /// Records that a binary begins, which ends the previous one.
    pub(super) fn begin(&mut self, binary: &str) {
        self.end();
        self.running = Some((binary.to_owned(), Instant::now()));
    }

    pub(super) fn end(&mut self) {
        if let Some((binary, start)) = self.running.take() {
            self.lasted.push((start.elapsed(), binary));
        }
    }

    /// Records a binary that ran in parallel with others.
    pub(super) fn took(&mut self, binary: &str, time: Duration) {
        self.running = None;
        self.lasted.push((time, binary.to_owned()));
    }

    /// Returns the long durations, the longest first.
    pub(super) fn tell(&mut self) -> Vec<String> {
        let mut lasted = mem::take(&mut self.lasted);
        lasted.retain(|(time, _)| *time >= LONG);
        lasted.sort_by(|one, other| other.cmp(one));
        lasted.into_iter().map(|(time, binary)| format!("{:>4} s  {binary}", time.as_secs())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_are_listed_first_and_fast_ones_are_not_listed() {
        let mut pace = Pace::default();
        for seconds in [9, 10, 70] {
            pace.lasted.push((Duration::from_secs(seconds), format!("tests of {seconds} s")));
        }
        assert_eq!(pace.tell(), ["  70 s  tests of 70 s", "  10 s  tests of 10 s"]);
        assert!(pace.tell().is_empty());
    }

    #[test]
    fn one_is_over_when_the_next_begins_and_once() {
        let mut pace = Pace::default();
        pace.end();
        pace.begin("one");
        pace.begin("two");
        pace.end();
        pace.end();
        assert_eq!(pace.lasted.iter().map(|(_, binary)| binary.as_str()).collect::<Vec<_>>(), ["one", "two"]);
    }
}
