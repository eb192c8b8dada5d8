//! The example `schedule`, as processes that share a store.
use std::collections::BTreeSet;
use std::path::Path;

use crate::example::Running;

/// A replica with a tick each three seconds, and what it has said about which tick.
struct Replica {
    process: Running,
    heard: Vec<(u64, String)>,
}

impl Replica {
    fn start(folder: &Path, seconds: &str) -> Self {
        let store = format!("sqlite:{}", folder.join("ticks.db").display());
        Self { process: Running::start("schedule", &[&store, "*/3 * * * * *", seconds]), heard: Vec::new() }
    }

    /// Reads a line. A replica prints one or more for each tick.
    fn hear(&mut self) -> &(u64, String) {
        let line = self.process.says(1).pop().expect("a replica that runs");
        let (tick, said) = line.strip_prefix("tick ").and_then(|line| line.split_once(": ")).expect("a tick");
        self.heard.push((tick.parse().unwrap(), said.to_owned()));
        self.heard.last().unwrap()
    }

    /// Returns the ticks of lines that begin so.
    fn ticks(&self, begin: &str) -> BTreeSet<u64> {
        self.heard.iter().filter(|(_, said)| said.starts_with(begin)).map(|(tick, _)| *tick).collect()
    }
}

#[test]
fn each_tick_runs_in_one_of_three_replicas() {
    let folder = tempfile::tempdir().unwrap();
    let mut replicas = [(); 3].map(|()| Replica::start(folder.path(), "0"));
    // The ticks that have ended in all replicas, since one that starts later misses the first ones.
    let mut ended = BTreeSet::new();
    while ended.len() < 3 {
        for replica in &mut replicas {
            replica.hear();
        }
        ended = &(&replicas[0].ticks("done") & &replicas[1].ticks("done")) & &replicas[2].ticks("done");
    }
    let runs: Vec<_> = replicas.iter().flat_map(|replica| &replica.heard).filter(|(_, said)| said == "runs").collect();
    let ran: BTreeSet<_> = runs.iter().map(|(tick, _)| *tick).collect();
    assert_eq!(runs.len(), ran.len(), "a tick ran twice: {runs:?}");
    assert!(ran.is_superset(&ended), "of {ended:?}, only {ran:?} ran");
}

#[test]
fn a_tick_whose_replica_is_killed_runs_in_another_one() {
    let folder = tempfile::tempdir().unwrap();
    // The work takes longer than the test.
    let [mut first, mut second] = [(); 2].map(|()| Replica::start(folder.path(), "600"));
    // A tick that runs in one of them, while the other one waits for it.
    let (tick, killed, mut survivor) = loop {
        first.hear();
        second.hear();
        if let Some(tick) = (&first.ticks("runs") & &second.ticks("waits")).pop_first() {
            break (tick, first, second);
        }
        if let Some(tick) = (&second.ticks("runs") & &first.ticks("waits")).pop_first() {
            break (tick, second, first);
        }
    };
    killed.process.signal("-KILL");
    while *survivor.hear() != (tick, "runs".to_owned()) {}
}
