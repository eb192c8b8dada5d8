//! Comparison of the diagram of the states of a key with the protocol.
use std::collections::BTreeSet;
use std::time::Duration;

use idempotent::store::protocol::{self, Write};
use idempotent::store::{ClaimHandle, ClaimRequest, Completion, OnExpiry, Record, Release, ReleaseKind, StateKind};
use idempotent::{Identity, Scene, Timestamp};

const GUIDE: &str = include_str!("../../../guides/guarantees.md");
const LEASE: Duration = Duration::from_secs(30);

type Transitions = BTreeSet<(String, String)>;

/// A record, and the last claim of its key.
struct Reached {
    record: Option<Record>,
    held: Option<ClaimHandle>,
}

impl Reached {
    /// Returns the name of the state in the diagram.
    fn state(&self, now: Timestamp) -> String {
        match protocol::live(self.record.as_ref(), now).map_or(StateKind::Absent, |record| record.state.kind()) {
            StateKind::Absent => "[*]".to_owned(),
            kind => kind.to_string(),
        }
    }

    fn after(&self, write: Write, held: Option<ClaimHandle>) -> Self {
        let record = match write {
            Write::Keep => self.record.clone(),
            Write::Put(record) => Some(record),
            Write::Delete => None,
        };
        Self { record, held }
    }

    /// Returns the results of each request that a worker can make.
    fn next(&self, now: Timestamp) -> Vec<Self> {
        let key = Identity::new(Scene::Mq, "states", "k").key("tests").unwrap();
        let record = self.record.as_ref();
        let mut next = Vec::new();
        for (max_attempts, on_expiry) in
            [(0, OnExpiry::Takeover), (1, OnExpiry::Takeover), (2, OnExpiry::Takeover), (0, OnExpiry::Park)]
        {
            let request =
                ClaimRequest { max_attempts, on_expiry, lease: LEASE, ..ClaimRequest::new(key.clone()).unwrap() };
            let (_, write) = protocol::claim(record, &request, now);
            next.push(self.after(write, Some(ClaimHandle::unanswered(key.clone(), request.owner))));
        }
        let Some(held) = &self.held else { return next };
        let done = Completion { value: None, retain: 100 * LEASE };
        let mut settled = vec![protocol::renew(record, held, LEASE, now), protocol::complete(record, held, &done, now)];
        use ReleaseKind::{Delete, MarkDead, MarkFailed, Refund, Vacate};
        for kind in [Delete, Vacate, Refund, MarkFailed, MarkDead] {
            let release = Release { kind, error: "".into(), delay: Duration::ZERO, retention: 100 * LEASE };
            settled.push(protocol::release(record, held, &release, now));
        }
        next.extend(settled.into_iter().map(|(_, write)| self.after(write, self.held.clone())));
        next
    }
}

/// Adds the transitions of `steps` requests, during a lease and after its end.
fn explore(from: &Reached, now: Timestamp, steps: u32, found: &mut Transitions) {
    if steps == 0 {
        return;
    }
    for now in [now + LEASE / 2, now + 2 * LEASE] {
        let before = from.state(now);
        for reached in from.next(now) {
            let after = reached.state(now);
            if before != after {
                found.insert((before.clone(), after));
            }
            explore(&reached, now, steps - 1, found);
        }
    }
}

#[test]
fn the_diagram_shows_each_transition_by_a_worker_and_no_other() {
    let mut found = Transitions::new();
    explore(&Reached { record: None, held: None }, Timestamp(1_767_225_600_000_000), 3, &mut found);
    let (_, diagram) = GUIDE.split_once("stateDiagram-v2\n").unwrap();
    let (diagram, _) = diagram.split_once("```").unwrap();
    let arrow = |line: &str| {
        let (from, to) = line.split_once(" --> ").expect(line);
        (from.trim().to_owned(), to.split_once(": ").expect(line).0.to_owned())
    };
    let arrows = diagram.lines().filter(|line| line.trim() != "direction LR").map(arrow);
    assert_eq!(arrows.collect::<Transitions>(), found);
}
