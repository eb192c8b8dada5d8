//! A store's statements against the pure protocol: the same inputs, the same answers, the same record.
use std::collections::{BTreeSet, HashMap};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::protocol::{self, Write, live};
use idempotent_core::{
    Admin, Batch, Claim, ClaimHandle, ClaimRequest, Clock, Completion, FencingToken, Fingerprint, Key, OnExpiry,
    OwnerToken, Purge, Record, Release, ReleaseKind, State, Store, Timestamp,
};
use idempotent_testkit::VirtualClock;

use crate::support::{Random, key};

/// The pure model: records in a map, and the decisions that were taken so far.
#[derive(Default)]
struct Model {
    records: HashMap<u128, Record>,
    decisions: BTreeSet<String>,
}

impl Model {
    /// Decides about a key, and notes the operation, the answer, and the states before and after.
    fn step<A: Debug>(
        &mut self,
        operation: &str,
        key: &Key,
        now: Timestamp,
        decide: impl FnOnce(Option<&Record>) -> (A, Write),
    ) -> A {
        let found = self.records.get(&key.hash());
        let before = name(found, now);
        let (answer, write) = decide(found);
        match write {
            Write::Keep => {}
            Write::Put(record) => drop(self.records.insert(key.hash(), record)),
            Write::Delete => drop(self.records.remove(&key.hash())),
        }
        let after = name(self.records.get(&key.hash()), now);
        let answered = format!("{answer:?}");
        let answered = answered.split(['(', ' ']).next().unwrap_or_default();
        self.decisions.insert(format!("{operation}, {before}: {answered}, {after}"));
        answer
    }

    fn claim(&mut self, request: &ClaimRequest, now: Timestamp) -> Claim {
        self.step("claim", &request.key, now, |found| protocol::claim(found, request, now))
    }
}

fn name(record: Option<&Record>, now: Timestamp) -> String {
    match live(record, now) {
        Some(Record { state: State::Consuming { until, .. }, .. }) if *until <= now => "orphaned".to_owned(),
        Some(record) => record.state.kind().to_string(),
        None if record.is_some() => "past its time".to_owned(),
        None => "absent".to_owned(),
    }
}

/// One sequence on two keys: operations drawn so that times meet exactly, one µs early and one late.
struct Sequence<'a, S> {
    store: &'a S,
    clock: &'a VirtualClock,
    model: &'a mut Model,
    random: Random,
    keys: [Key; 2],
}

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3_600);

impl<S: Store + Admin + Batch + Purge> Sequence<'_, S> {
    /// Returns a lease of at most 30 days. The store treats a longer one in a record as corrupt.
    fn lease(&mut self) -> Duration {
        self.random.of(&[Duration::from_micros(1), MS, MS, MS * 5, HOUR, HOUR * 24 * 30])
    }

    fn span(&mut self) -> Duration {
        self.random.of(&[Duration::from_micros(1), MS, MS, MS * 5, HOUR, Duration::MAX])
    }

    fn key(&mut self) -> Key {
        let keys = self.keys.clone();
        self.random.of(&[keys[0].clone(), keys[0].clone(), keys[1].clone()])
    }

    fn request(&mut self) -> ClaimRequest {
        let prints = [None, Some(Fingerprint::of_bytes("a")), Some(Fingerprint::of_bytes("b"))];
        let mut retention = self.span();
        if self.random.below(4) == 0 {
            retention = Duration::ZERO;
        }
        ClaimRequest {
            key: self.key(),
            owner: OwnerToken(u128::from(self.random.below(3) + 1) << 64),
            lease: self.lease(),
            fingerprint: self.random.of(&prints),
            max_attempts: self.random.of(&[0, 0, 1, 2, 3]),
            on_expiry: self.random.of(&[OnExpiry::Takeover, OnExpiry::Takeover, OnExpiry::Park]),
            retention,
            display: self.random.of(&[None, Some(Arc::from("card 4***"))]),
        }
    }

    fn held(&mut self) -> ClaimHandle {
        let (key, owner) = (self.key(), OwnerToken(u128::from(self.random.below(3) + 1) << 64));
        let granted = self.model.records.get(&key.hash()).map(|record| record.fencing);
        // Not known, the one there is, or one of an earlier grant.
        let fencing = match self.random.below(4) {
            0 => None,
            1 => granted.map(|fencing| FencingToken(fencing.0 - 1)),
            _ => granted,
        };
        ClaimHandle { key, owner, fencing, terms: None }
    }

    fn completion(&mut self) -> Completion {
        let value = self.random.of(&[None, Some(Arc::from(&b""[..])), Some(Arc::from(&b"\0result\xff"[..]))]);
        Completion { value, retain: self.span() }
    }

    fn release(&mut self) -> Release {
        let verdicts = [
            ReleaseKind::Delete,
            ReleaseKind::Vacate,
            ReleaseKind::Vacate,
            ReleaseKind::Refund,
            ReleaseKind::MarkFailed,
            ReleaseKind::MarkDead,
        ];
        let zero = self.random.below(2) == 0;
        Release {
            kind: self.random.of(&verdicts),
            delay: if zero { Duration::ZERO } else { self.span() },
            retention: self.span(),
            error: Arc::from("it's \0 failed"),
        }
    }

    async fn step(&mut self) {
        let now = self.clock.wall();
        match self.random.below(20) {
            0..=6 => {
                let request = self.request();
                let expected = self.model.claim(&request, now);
                assert_eq!(self.store.claim(&request).await.unwrap(), expected, "{request:?}");
            }
            7 | 8 => {
                let (held, lease) = (self.held(), self.lease());
                let expected =
                    self.model.step("renew", &held.key, now, |found| protocol::renew(found, &held, lease, now));
                assert_eq!(self.store.renew(&held, lease).await.unwrap(), expected, "{held:?}");
            }
            9 | 10 => {
                let (held, done) = (self.held(), self.completion());
                let expected =
                    self.model.step("complete", &held.key, now, |found| protocol::complete(found, &held, &done, now));
                assert_eq!(self.store.complete(&held, &done).await.unwrap(), expected, "{held:?}");
            }
            11..=13 => {
                let (held, release) = (self.held(), self.release());
                let operation = format!("{:?}", release.kind);
                let expected =
                    self.model.step(&operation, &held.key, now, |found| protocol::release(found, &held, &release, now));
                assert_eq!(self.store.release(&held, &release).await.unwrap(), expected, "{held:?} {release:?}");
            }
            14 => self.forget(now).await,
            15 => self.purge(now).await,
            16 => self.batch(now).await,
            _ => self.clock.jump(self.random.of(&[
                Duration::from_micros(1),
                Duration::from_micros(999),
                MS,
                MS * 2,
                MS * 5,
                Duration::from_secs(3_600),
            ])),
        }
        self.compare().await;
    }

    async fn forget(&mut self, now: Timestamp) {
        let (key, force, retention) = (self.key(), self.random.below(2) == 0, self.span());
        let fencing = self.model.records.get(&key.hash()).map_or(FencingToken(7), |record| record.fencing);
        let expected = FencingToken(fencing.0 + u64::from(self.random.below(4) == 0));
        let wanted =
            self.model.step("forget", &key, now, |found| protocol::forget(found, expected, force, retention, now));
        assert_eq!(self.store.forget(&key, expected, force, retention).await.unwrap(), wanted, "{expected:?} {force}");
    }

    /// Purges in the model and in the store. The store keeps a removed row for 2 ms, which only the count shows.
    async fn purge(&mut self, now: Timestamp) {
        self.store.purge(usize::MAX).await.unwrap();
        self.model.records.retain(|_, record| !protocol::purgeable(record, now));
    }

    async fn batch(&mut self, now: Timestamp) {
        match self.random.below(3) {
            0 => {
                let requests: Vec<_> = (0..self.random.below(5)).map(|_| self.request()).collect();
                let expected: Vec<_> = requests.iter().map(|request| self.model.claim(request, now)).collect();
                let answers = self.store.claim_all(&requests).await;
                assert_eq!(answers.into_iter().map(Result::unwrap).collect::<Vec<_>>(), expected);
            }
            1 => {
                let all: Vec<_> = (0..self.random.below(5)).map(|_| (self.held(), self.lease())).collect();
                let answers = self.store.renew_all(&all).await;
                for ((held, lease), answer) in all.iter().zip(answers) {
                    let decide = |found: Option<&Record>| protocol::renew(found, held, *lease, now);
                    assert_eq!(answer.unwrap(), self.model.step("renew in a batch", &held.key, now, decide));
                }
            }
            _ => {
                let all: Vec<_> = (0..self.random.below(5)).map(|_| (self.held(), self.completion())).collect();
                let answers = self.store.complete_all(&all).await;
                for ((held, done), answer) in all.iter().zip(answers) {
                    let decide = |found: Option<&Record>| protocol::complete(found, held, done, now);
                    assert_eq!(answer.unwrap(), self.model.step("complete in a batch", &held.key, now, decide));
                }
            }
        }
    }

    async fn compare(&self) {
        let now = self.clock.wall();
        for key in &self.keys {
            let expected = live(self.model.records.get(&key.hash()), now);
            assert_eq!(self.store.peek(key).await.unwrap().as_ref(), expected);
        }
    }
}

/// Runs a sequence for each seed. Returns each kind of decision that was taken.
pub(crate) async fn sequences<S: Store + Admin + Batch + Purge>(
    store: &S,
    clock: &VirtualClock,
    seeds: std::ops::Range<u64>,
) -> BTreeSet<String> {
    let mut model = Model::default();
    for seed in seeds {
        let keys = [key(&format!("{seed} a")), key(&format!("{seed} b"))];
        let mut sequence = Sequence { store, clock, model: &mut model, random: Random(seed), keys };
        for _ in 0..9 {
            sequence.step().await;
        }
        model.records.clear();
    }
    model.decisions
}
