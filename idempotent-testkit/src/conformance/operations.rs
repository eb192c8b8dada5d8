//! Random operations with few keys, few owners, and times that coincide exactly. They shrink: a key towards the first
//! one, a period towards the shortest, a script towards fewer steps.
use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use idempotent_core::{
    Claim, ClaimHandle, ClaimRequest, Completion, FencingToken, Fingerprint, GrantTerms, Key, OnExpiry, OwnerToken,
    Release, ReleaseKind,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::strategy::Union;

use super::subject::HOUR;

/// A script: its steps, and whether requests have fencing tokens.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    /// True if each request has the last fencing token of its owner on its key, like an executor's. Otherwise requests
    /// have no fencing token, like those after a claim without an answer.
    pub(crate) told: bool,
    pub(crate) steps: Vec<Operation>,
}

/// The last fencing tokens and terms, by key and owner. Empty if requests have none.
#[derive(Debug, Default)]
pub(crate) struct Grants(HashMap<(usize, u8), (FencingToken, Option<GrantTerms>)>);

/// A step of a script: a request with numbers in place of keys.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Claim(Ask),
    Renew(By, Duration),
    Complete(By, Completion),
    Release(By, Release),
    ClaimAll(Vec<Ask>),
    RenewAll(Vec<(By, Duration)>),
    CompleteAll(Vec<(By, Completion)>),
    /// An operator forgets the key, with the last fencing token or another one.
    Forget {
        key: usize,
        right: bool,
        force: bool,
        retention: Duration,
    },
    Purge(usize),
    Pass(Duration),
}

/// A claim.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    by: By,
    lease: Duration,
    payload: Option<char>,
    max_attempts: u32,
    on_expiry: OnExpiry,
    retention: Duration,
    shown: bool,
}

/// The owner, the key and the connection.
#[derive(Clone, Debug)]
pub(crate) struct By {
    pub(crate) key: usize,
    owner: u8,
    /// True if the fencing token was never granted.
    stray: bool,
    pub(crate) second: bool,
}

pub(crate) const KEYS: usize = 3;
pub(crate) const NAMES: [char; KEYS] = ['a', 'b', 'c'];
const OWNERS: u8 = 4;

impl By {
    pub(crate) fn held(&self, keys: &[Key], granted: &Grants) -> ClaimHandle {
        let (fencing, terms) = granted.0.get(&(self.key, self.owner)).cloned().unzip();
        let fencing = if self.stray { Some(FencingToken(1)) } else { fencing };
        let terms = terms.flatten();
        ClaimHandle { fencing, terms, ..ClaimHandle::unanswered(keys[self.key].clone(), self.token()) }
    }

    /// Returns the owner token, which is never zero, since zero means no owner.
    fn token(&self) -> OwnerToken {
        OwnerToken(u128::from(self.owner) + 1)
    }
}

impl Grants {
    /// Notes a grant. The terms stay valid for the store, even if a later step changes the record.
    pub(crate) fn note(&mut self, ask: &Ask, keys: &[Key], claim: &Claim) {
        if let Claim::Acquired(grant) = claim {
            let held = ClaimHandle::granted(&ask.request(keys), grant);
            self.0.insert((ask.by.key, ask.by.owner), (grant.fencing, held.terms));
        }
    }
}

impl Ask {
    pub(crate) fn by(&self) -> &By {
        &self.by
    }

    pub(crate) fn request(&self, keys: &[Key]) -> ClaimRequest {
        ClaimRequest {
            key: keys[self.by.key].clone(),
            owner: self.by.token(),
            lease: self.lease,
            fingerprint: self.payload.map(|payload| Fingerprint::of_bytes(payload.to_string())),
            max_attempts: self.max_attempts,
            on_expiry: self.on_expiry,
            retention: self.retention,
            display: self.shown.then(|| "shown".into()),
        }
    }
}

/// Returns scripts of up to `length` steps. With `exact`, leases, delays and retentions end when others begin.
/// Otherwise they are hours, because in real time none may end.
pub(crate) fn scripts(exact: bool, length: usize) -> impl Strategy<Value = Script> {
    (sometimes(50), vec(operation(exact), 1..=length)).prop_map(|(told, steps)| Script { told, steps })
}

fn operation(exact: bool) -> impl Strategy<Value = Operation> {
    let renewal = || (by(), span(exact));
    let completion = || (by(), done(exact));
    let few = 1..4_usize;
    prop_oneof![
        32 => ask(exact).prop_map(Operation::Claim),
        9 => renewal().prop_map(|(by, lease)| Operation::Renew(by, lease)),
        11 => completion().prop_map(|(by, done)| Operation::Complete(by, done)),
        17 => (by(), release(exact)).prop_map(|(by, release)| Operation::Release(by, release)),
        3 => vec(ask(exact), few.clone()).prop_map(Operation::ClaimAll),
        2 => vec(renewal(), few.clone()).prop_map(Operation::RenewAll),
        2 => vec(completion(), few).prop_map(Operation::CompleteAll),
        6 => (0..KEYS, sometimes(80), sometimes(30), span(exact))
            .prop_map(|(key, right, force, retention)| Operation::Forget { key, right, force, retention }),
        4 => one_of(&[0, 1, 3, 1_000]).prop_map(Operation::Purge),
        // Just before an end, at the end, or at a moment without an end.
        14 => (span(exact), 0..3_u64, sometimes(80)).prop_map(|(span, before, long)| {
            let before = Duration::from_millis(before);
            Operation::Pass(if long { span - before } else { before })
        }),
    ]
}

/// Returns true with this probability in percent; shrinks to false.
fn sometimes(percent: u32) -> impl Strategy<Value = bool> {
    prop_oneof![100 - percent => Just(false), percent => Just(true)]
}

/// Returns one of the choices; shrinks towards the first.
fn one_of<T: Clone + fmt::Debug + 'static>(choices: &[T]) -> Union<Just<T>> {
    Union::new(choices.iter().cloned().map(Just))
}

fn span(exact: bool) -> impl Strategy<Value = Duration> {
    let seconds: &[u64] = if exact { &[1, 5, 10, 30, 60] } else { &[HOUR.as_secs()] };
    one_of(seconds).prop_map(Duration::from_secs)
}

fn by() -> impl Strategy<Value = By> {
    (0..KEYS, 0..OWNERS, sometimes(10), sometimes(40)).prop_map(|(key, owner, stray, second)| By {
        key,
        owner,
        stray,
        second,
    })
}

fn ask(exact: bool) -> impl Strategy<Value = Ask> {
    let payload = prop_oneof![4 => Just(None), 1 => Just(Some('x')), 1 => Just(Some('y'))];
    let limit = one_of(&[0, 0, 1, 2, 3, 3]);
    let parks = sometimes(10);
    (by(), span(exact), payload, limit, parks, span(exact), sometimes(30)).prop_map(
        |(by, lease, payload, max_attempts, parks, retention, shown)| {
            let on_expiry = if parks { OnExpiry::Park } else { OnExpiry::Takeover };
            Ask { by, lease, payload, max_attempts, on_expiry, retention, shown }
        },
    )
}

fn done(exact: bool) -> impl Strategy<Value = Completion> {
    let value = option::weighted(0.8, vec(any::<u8>(), 0..3));
    (value, span(exact)).prop_map(|(value, retain)| Completion { value: value.map(Into::into), retain })
}

fn release(exact: bool) -> impl Strategy<Value = Release> {
    let verdict = prop_oneof![
        3 => Just(ReleaseKind::Delete),
        3 => Just(ReleaseKind::Vacate),
        2 => Just(ReleaseKind::Refund),
        2 => Just(ReleaseKind::MarkFailed),
        2 => Just(ReleaseKind::MarkDead),
    ];
    let delay = prop_oneof![6 => Just(Duration::ZERO), 4 => span(exact)];
    let error = one_of(&["no stock", "timed out", ""]);
    (verdict, delay, span(exact), error).prop_map(|(verdict, delay, retention, error)| Release {
        kind: verdict,
        delay,
        retention,
        error: error.into(),
    })
}

/// Prints the script for the message of a broken law.
impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.told {
            writeln!(f, "      (each owner sends the fencing token of its last grant)")?;
        }
        (1..).zip(&self.steps).try_for_each(|(number, step)| writeln!(f, "{number:4}. {step}"))
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Claim(ask) => write!(f, "claim {ask}"),
            Self::Renew(by, lease) => write!(f, "renew {by} for {lease:?}"),
            Self::Complete(by, done) => write!(f, "complete {by} with {}", with(done)),
            Self::Release(by, release) => write!(
                f,
                "release {by} as {:?}, delay {:?}, retention {:?}, error {:?}",
                release.kind, release.delay, release.retention, release.error
            ),
            Self::ClaimAll(asks) => write!(f, "claim in one batch: {}", join(asks.iter().map(ToString::to_string))),
            Self::RenewAll(all) => {
                write!(f, "renew in one batch: {}", join(all.iter().map(|(by, lease)| format!("{by} for {lease:?}"))))
            }
            Self::CompleteAll(all) => {
                let each = all.iter().map(|(by, done)| format!("{by} with {}", with(done)));
                write!(f, "complete in one batch: {}", join(each))
            }
            Self::Forget { key, right, force, retention } => {
                let number = if *right { "its number" } else { "another number" };
                write!(f, "forget {} by {number}, force {force}, retention {retention:?}", NAMES[*key])
            }
            Self::Purge(at_most) => write!(f, "purge {at_most}"),
            Self::Pass(by) => write!(f, "let {by:?} pass"),
        }
    }
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = if self.stray { " under a number never granted" } else { "" };
        let over = if self.second { " over the second connection" } else { "" };
        write!(f, "key {} by owner {}{number}{over}", NAMES[self.key], self.owner)
    }
}

impl fmt::Display for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { by, lease, payload, max_attempts, on_expiry, retention, shown } = self;
        write!(f, "{by} for {lease:?}, payload {payload:?}, max_attempts {max_attempts}, on_expiry {on_expiry:?}")?;
        write!(f, ", retention {retention:?}, display {shown}")
    }
}

fn with(done: &Completion) -> String {
    format!("{:?}, retain {:?}", done.value, done.retain)
}

fn join(each: impl Iterator<Item = String>) -> String {
    each.collect::<Vec<_>>().join("; ")
}
