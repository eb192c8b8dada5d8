//! Lanes: jobs of one lane run one at a time, in the order of their arrival.
use std::collections::{HashMap, VecDeque};

/// The waiting jobs. A lane is busy from the time one of its jobs is ready until [`done`](Self::done) is called.
#[derive(Debug)]
pub(crate) struct Lanes<J> {
    ready: VecDeque<(Option<u128>, J)>,
    /// The jobs that wait for the current job of each busy lane.
    busy: HashMap<u128, VecDeque<J>>,
}

impl<J> Lanes<J> {
    pub(crate) fn new() -> Self {
        Self { ready: VecDeque::new(), busy: HashMap::new() }
    }

    /// Adds a job. Returns true if it is ready, and false if it waits for its lane.
    pub(crate) fn push(&mut self, lane: Option<u128>, job: J) -> bool {
        if let Some(lane) = lane {
            if let Some(behind) = self.busy.get_mut(&lane) {
                behind.push_back(job);
                return false;
            }
            self.busy.insert(lane, VecDeque::new());
        }
        self.ready.push_back((lane, job));
        true
    }

    /// Returns true if a job is ready.
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Returns the next job to run. Its lane stays busy.
    pub(crate) fn next(&mut self) -> Option<(Option<u128>, J)> {
        self.ready.pop_front()
    }

    /// Ends the current job of a lane, so that its next job becomes ready.
    pub(crate) fn done(&mut self, lane: u128) {
        match self.busy.get_mut(&lane).and_then(VecDeque::pop_front) {
            Some(job) => self.ready.push_back((Some(lane), job)),
            None => drop(self.busy.remove(&lane)),
        }
    }

    /// Removes the jobs that wait for the current job of a lane.
    pub(crate) fn take_behind(&mut self, lane: u128) -> Vec<J> {
        self.busy.get_mut(&lane).map(std::mem::take).unwrap_or_default().into()
    }

    /// Removes the waiting jobs for which `which` returns true.
    pub(crate) fn take(&mut self, mut which: impl FnMut(&J) -> bool) -> Vec<J> {
        let mut taken = Vec::new();
        for behind in self.busy.values_mut() {
            for job in std::mem::take(behind) {
                if which(&job) { taken.push(job) } else { behind.push_back(job) }
            }
        }
        for (lane, job) in std::mem::take(&mut self.ready) {
            if which(&job) {
                taken.push(job);
                // The job was the current one of its lane.
                if let Some(lane) = lane {
                    self.done(lane);
                }
            } else {
                self.ready.push_back((lane, job));
            }
        }
        taken
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        // Jobs of a busy lane wait, too.
        self.ready.is_empty() && self.busy.values().all(VecDeque::is_empty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_of_one_lane_come_one_after_the_other_and_others_pass_them() {
        let mut lanes = Lanes::new();
        for (lane, job) in [(Some(1), "a1"), (Some(1), "a2"), (Some(2), "b1"), (None, "c"), (Some(1), "a3")] {
            lanes.push(lane, job);
        }
        let next = |lanes: &mut Lanes<_>| lanes.next().map(|(_, job)| job);
        assert_eq!([next(&mut lanes), next(&mut lanes), next(&mut lanes)], [Some("a1"), Some("b1"), Some("c")]);
        assert_eq!(next(&mut lanes), None);
        lanes.done(2);
        assert_eq!(next(&mut lanes), None);
        lanes.done(1);
        lanes.push(Some(1), "a4");
        assert_eq!(next(&mut lanes), Some("a2"));
        assert_eq!(lanes.take_behind(1), ["a3", "a4"]);
        lanes.done(1);
        assert!(lanes.is_empty() && lanes.busy.is_empty());
    }

    #[test]
    fn taking_a_ready_job_lets_the_next_of_its_lane_come() {
        let mut lanes = Lanes::new();
        for job in ["a1", "a2", "a3"] {
            lanes.push(Some(1), job);
        }
        assert_eq!(lanes.take(|job| *job != "a2"), ["a3", "a1"]);
        assert_eq!(lanes.next(), Some((Some(1), "a2")));
        lanes.done(1);
        assert!(lanes.is_empty());
    }
}
