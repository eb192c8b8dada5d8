//! Random operations: few keys, few owners, and times that meet each other exactly.
use std::fmt;
use std::time::Duration;

use idempotent_core::{ClaimRequest, Completion, Fingerprint, Held, OnExpiry, OwnerToken, Release, Verdict};

use super::Subject;
use crate::entropy::Dice;

/// One step of a script. Keys are numbers here; a subject makes keys of them.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Claim(ClaimRequest),
    Renew(Held, Duration),
    Complete(Held, Completion),
    Release(Held, Release),
    /// By the number last granted, or another one.
    Forget {
        key: usize,
        right: bool,
        force: bool,
        memory: Duration,
    },
    Purge(usize),
    Pass(Duration),
}

pub(crate) const KEYS: usize = 3;
const OWNERS: u64 = 4;

/// Spans such that leases, delays and memories end when others begin; or hours, where time is real and nothing
/// is to end.
fn span(dice: &mut Dice, exact: bool) -> Duration {
    const SECONDS: [u64; 5] = [1, 5, 10, 30, 60];
    if exact {
        let index = usize::try_from(dice.below(5)).unwrap_or_default();
        Duration::from_secs(SECONDS[index])
    } else {
        Duration::from_secs(3_600)
    }
}

/// `count` operations of this seed, on the subject's keys named after the seed.
pub(crate) fn script(s: &Subject, seed: u64, count: usize) -> Vec<Operation> {
    let mut dice = Dice::new(seed);
    (0..count).map(|_| operation(s, seed, &mut dice)).collect()
}

pub(crate) fn key_name(seed: u64, index: usize) -> String {
    format!("seed {seed} key {index}")
}

fn operation(s: &Subject, seed: u64, dice: &mut Dice) -> Operation {
    let exact = s.clock.is_some();
    let index = usize::try_from(dice.below(KEYS as u64)).unwrap_or_default();
    let key = s.key(&key_name(seed, index));
    let owner = OwnerToken(u128::from(dice.below(OWNERS)));
    let chance = |dice: &mut Dice, percent| dice.below(100) < percent;
    // Now and then by a number that was never granted.
    let fencing = chance(dice, 10).then_some(idempotent_core::Fencing(1));
    let held = Held { fencing, ..Held::unanswered(key.clone(), owner) };
    match dice.below(100) {
        0..36 => Operation::Claim(ClaimRequest {
            key,
            owner,
            lease: span(dice, exact),
            fingerprint: match dice.below(6) {
                0 => Some(Fingerprint::of_bytes("a")),
                1 => Some(Fingerprint::of_bytes("b")),
                _ => None,
            },
            max_attempts: u32::try_from([0, 0, 1, 2, 3, 3][usize::try_from(dice.below(6)).unwrap_or_default()])
                .unwrap_or_default(),
            on_expiry: if chance(dice, 10) { OnExpiry::Park } else { OnExpiry::Takeover },
            memory: span(dice, exact),
            display: chance(dice, 30).then(|| "shown".into()),
        }),
        36..46 => Operation::Renew(held, span(dice, exact)),
        46..58 => {
            let value = chance(dice, 80).then(|| dice.roll().to_le_bytes()[..3].into());
            Operation::Complete(held, Completion { value, retain: span(dice, exact) })
        }
        58..76 => {
            let verdict = match dice.below(10) {
                0..3 => Verdict::Delete,
                3..6 => Verdict::Vacate,
                6..8 => Verdict::Refund,
                8 => Verdict::Fail,
                _ => Verdict::Bury,
            };
            let delay = if chance(dice, 40) { span(dice, exact) } else { Duration::ZERO };
            let error = ["no stock", "timed out", ""][usize::try_from(dice.below(3)).unwrap_or_default()].into();
            Operation::Release(held, Release { verdict, delay, memory: span(dice, exact), error })
        }
        76..82 => Operation::Forget {
            key: index,
            right: chance(dice, 80),
            force: chance(dice, 30),
            memory: span(dice, exact),
        },
        82..86 => Operation::Purge([0, 1, 3, 1_000][usize::try_from(dice.below(4)).unwrap_or_default()]),
        _ => {
            // Just before an end, at it, or a moment in which nothing ends.
            let before = Duration::from_millis(dice.below(2));
            Operation::Pass(if chance(dice, 80) { span(dice, exact) - before } else { before })
        }
    }
}

/// What a person reads when a law is broken.
impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |key: &idempotent_core::Key| format!("key ..{:04x}", key.hash() & 0xffff);
        match self {
            Self::Claim(ask) => write!(
                f,
                "claim {} by {} for {:?}, payload {:?}, max_attempts {}, on_expiry {:?}, memory {:?}, display {:?}",
                name(&ask.key),
                ask.owner.0,
                ask.lease,
                ask.fingerprint.map(|print| print.to_bytes()[1]),
                ask.max_attempts,
                ask.on_expiry,
                ask.memory,
                ask.display
            ),
            Self::Renew(held, lease) => write!(f, "renew {} by {} for {lease:?}", name(&held.key), held.owner.0),
            Self::Complete(held, done) => {
                write!(
                    f,
                    "complete {} by {} with {:?}, retain {:?}",
                    name(&held.key),
                    held.owner.0,
                    done.value,
                    done.retain
                )
            }
            Self::Release(held, release) => write!(
                f,
                "release {} by {} as {:?}, delay {:?}, memory {:?}, error {:?}",
                name(&held.key),
                held.owner.0,
                release.verdict,
                release.delay,
                release.memory,
                release.error
            ),
            Self::Forget { key, right, force, memory } => {
                let number = if *right { "its number" } else { "another number" };
                write!(f, "forget key {key} by {number}, force {force}, memory {memory:?}")
            }
            Self::Purge(at_most) => write!(f, "purge {at_most}"),
            Self::Pass(by) => write!(f, "let {by:?} pass"),
        }
    }
}
