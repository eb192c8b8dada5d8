//! A store's statements against the pure protocol: the same inputs, the same answers, the same record.
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::protocol::{self, Write, live};
use idempotent_core::{
    Admin, Batch, Claim, ClaimHandle, ClaimRequest, Clock, Completion, FencingToken, Fingerprint, InFlight, Key,
    OnExpiry, OwnerToken, Purge, Record, Release, ReleaseKind, Settled, State, Store, Timestamp,
};
use idempotent_testkit::VirtualClock;

use crate::support::{Random, key};

/// The pure model: records in a map.
#[derive(Default)]
struct Model {
    records: HashMap<u128, Record>,
    hits: BTreeMap<String, usize>,
}

impl Model {
    fn step<A>(&mut self, key: &Key, decide: impl FnOnce(Option<&Record>) -> (A, Write)) -> A {
        let (answer, write) = decide(self.records.get(&key.hash()));
        match write {
            Write::Keep => {}
            Write::Put(record) => {
                self.records.insert(key.hash(), record);
            }
            Write::Delete => {
                self.records.remove(&key.hash());
            }
        }
        answer
    }

    fn claim(&mut self, request: &ClaimRequest, now: Timestamp) -> Claim {
        let before = self.records.get(&request.key.hash()).cloned();
        let answer = self.step(&request.key, |found| protocol::claim(found, request, now));
        let class = claim_class(before.as_ref(), &answer, request, now);
        if request.retention.is_zero() && ["buried vacant", "parked", "buried crashed"].contains(&class) {
            self.hit("buried for no time");
        }
        self.hit(class);
        answer
    }

    fn hit(&mut self, class: impl Into<String>) {
        *self.hits.entry(class.into()).or_default() += 1;
    }
}

fn claim_class(before: Option<&Record>, answer: &Claim, request: &ClaimRequest, now: Timestamp) -> &'static str {
    let there = live(before, now);
    match answer {
        Claim::Acquired(grant) => match there.map(|record| &record.state) {
            None if before.is_some() => "acquired past a record's time",
            None => "acquired absent",
            Some(State::Consuming { owner, .. }) if *owner == request.owner => "acquired again",
            Some(State::Vacant { .. }) => "acquired vacant",
            Some(_) if grant.taken_over.is_some() => "taken over",
            Some(_) => "acquired otherwise",
        },
        Claim::InFlight(InFlight::Leased { .. }) => "in flight",
        Claim::InFlight(InFlight::Busy) => "busy",
        Claim::Consumed(_) => "consumed",
        Claim::Failed { .. } => "failed",
        Claim::Delayed { .. } => "delayed",
        Claim::Mismatch => "mismatch",
        Claim::Dead(dead) => match there.map(|record| &record.state) {
            Some(State::Dead { .. }) => "dead",
            Some(State::Vacant { .. }) => "buried vacant",
            _ if &*dead.error == protocol::PARKED => "parked",
            _ => "buried crashed",
        },
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
                let expected = self.model.step(&held.key, |found| protocol::renew(found, &held, lease, now));
                self.settled("renew", self.store.renew(&held, lease).await.unwrap(), expected);
            }
            9 | 10 => {
                let (held, completion) = (self.held(), self.completion());
                let again = matches!(live(self.model.records.get(&held.key.hash()), now).map(|r| &r.state),
                    Some(State::Consumed { owner, .. }) if *owner == held.owner);
                let expected = self.model.step(&held.key, |found| protocol::complete(found, &held, &completion, now));
                let class = if again { "complete again" } else { "complete" };
                self.settled(class, self.store.complete(&held, &completion).await.unwrap(), expected);
            }
            11..=13 => {
                let (held, release) = (self.held(), self.release());
                let expected = self.model.step(&held.key, |found| protocol::release(found, &held, &release, now));
                let answer = self.store.release(&held, &release).await.unwrap();
                self.settled(&format!("{:?}", release.kind), answer, expected);
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
        let wanted = self.model.step(&key, |found| protocol::forget(found, expected, force, retention, now));
        self.settled("forget", self.store.forget(&key, expected, force, retention).await.unwrap(), wanted);
    }

    /// Purges in the model and in the store. The store keeps a removed row for 2 ms, which only the count shows.
    async fn purge(&mut self, now: Timestamp) {
        self.store.purge(usize::MAX).await.unwrap();
        self.model.records.retain(|_, record| !protocol::purgeable(record, now));
        self.model.hit("purge");
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
                    let expected = self.model.step(&held.key, |found| protocol::renew(found, held, *lease, now));
                    self.settled("renew of a batch", answer.unwrap(), expected);
                }
            }
            _ => {
                let all: Vec<_> = (0..self.random.below(5)).map(|_| (self.held(), self.completion())).collect();
                let answers = self.store.complete_all(&all).await;
                for ((held, done), answer) in all.iter().zip(answers) {
                    let expected = self.model.step(&held.key, |found| protocol::complete(found, held, done, now));
                    self.settled("complete of a batch", answer.unwrap(), expected);
                }
            }
        }
    }

    fn settled(&mut self, step: &str, answer: Settled, expected: Settled) {
        assert_eq!(answer, expected, "{step}");
        self.model.hit(match expected {
            Settled::Done => format!("{step}: done"),
            Settled::Lost { now } => format!("{step}: lost, {now}"),
        });
    }

    async fn compare(&self) {
        let now = self.clock.wall();
        for key in &self.keys {
            let expected = live(self.model.records.get(&key.hash()), now);
            assert_eq!(self.store.peek(key).await.unwrap().as_ref(), expected);
        }
    }
}

/// Runs them, one for each seed: how often each class of answers was hit.
pub(crate) async fn sequences<S: Store + Admin + Batch + Purge>(
    store: &S,
    clock: &VirtualClock,
    seeds: std::ops::Range<u64>,
) -> BTreeMap<String, usize> {
    let mut model = Model::default();
    for seed in seeds {
        let keys = [key(&format!("{seed} a")), key(&format!("{seed} b"))];
        let mut sequence = Sequence { store, clock, model: &mut model, random: Random(seed), keys };
        for _ in 0..9 {
            // The seed is in the panic's thread output: a failing one is run again on its own.
            sequence.step().await;
        }
        model.records.clear();
    }
    model.hits
}

const CLASSES: [&str; 40] = [
    "acquired absent",
    "acquired past a record's time",
    "acquired again",
    "acquired vacant",
    "taken over",
    "in flight",
    "consumed",
    "failed",
    "delayed",
    "mismatch",
    "dead",
    "buried vacant",
    "parked",
    "buried crashed",
    "buried for no time",
    "renew: done",
    "renew: lost, absent",
    "renew: lost, consuming",
    "complete: done",
    "complete: lost, absent",
    "complete: lost, consuming",
    "complete: lost, consumed",
    "complete: lost, vacant",
    "complete: lost, failed",
    "complete: lost, dead",
    "complete again: done",
    "Delete: done",
    "Vacate: done",
    "Refund: done",
    "MarkFailed: done",
    "MarkDead: done",
    "Vacate: lost, consumed",
    "forget: done",
    "forget: lost, absent",
    "forget: lost, consuming",
    "forget: lost, consumed",
    "forget: lost, vacant",
    "renew of a batch: done",
    "complete of a batch: done",
    "purge",
];

/// Checks that every class of answers occurred more often than this.
#[track_caller]
pub(crate) fn all_hit(hits: &BTreeMap<String, usize>, more_than: usize) {
    for class in CLASSES {
        assert!(hits.get(class).is_some_and(|count| *count > more_than), "{class:?} was not hit: {hits:#?}");
    }
    for never in ["busy", "acquired otherwise"] {
        assert!(!hits.contains_key(never), "{hits:#?}");
    }
}
