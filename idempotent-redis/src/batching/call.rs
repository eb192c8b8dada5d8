//! Script calls for one key, and their encoding as commands.
pub(crate) mod native;
pub(crate) mod reply;

use std::sync::Arc;
use std::time::Duration;

use idempotent_core::{ClaimHandle, ClaimRequest, Completion, FencingToken, Key, OnExpiry, Release, ReleaseKind};
use redis::Cmd;

use crate::record::{
    LONGEST, ORDER_TABLE_SUFFIX, STEPS_SUFFIX, claimed, consumed_record, digits, granted_record, guard, micros, millis,
};
use crate::scripts::{Script, ScriptSet};

/// Maximum number of keys of one command. Other clients wait while the server runs a command.
pub(crate) const MAX_KEYS_PER_COMMAND: usize = 256;

#[derive(Clone, Debug)]
pub(crate) struct ScriptCall {
    pub(crate) params: ScriptParams,
    pub(crate) key: Key,
    /// The arguments, shared with the caller and with the batch.
    args: [Option<Arc<[u8]>>; 2],
}

/// The script and the leading arguments, which batched calls have in common.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct ScriptParams {
    pub(crate) script: Script,
    verdict: u8,
    numbers: [u64; 5],
    given: usize,
    /// True if the call waits for the durability of the store's settings. Renewals and releases do not wait: losing one
    /// costs time, but no guarantee.
    pub(crate) waits: bool,
    /// Maximum jitter that is added to the first number.
    spread: u64,
}

/// Longest retention without jitter, in ms.
///
/// A longer retention is extended by up to 1/128, at most 15 minutes. Records written at the same time then do not
/// expire in the same second.
const SPREAD_FROM_MS: u64 = 3_600_000;

/// Returns the retention of a completion in ms. 0 means forever.
fn retain(done: &Completion) -> u64 {
    if done.retain >= LONGEST { 0 } else { millis(done.retain) }
}

/// Returns a different jitter for each command, so that records written together do not expire together.
fn jitter(spread: u64) -> u64 {
    let micros =
        || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |now| now.subsec_micros());
    if spread == 0 { 0 } else { u64::from(micros()).wrapping_mul(0x9e37_79b9_7f4a_7c15) % spread }
}

impl ScriptCall {
    /// Creates a claim. With `timed`, the reply for a consumed key contains the remaining retention.
    pub(crate) fn claim(request: &ClaimRequest, timed: bool) -> Self {
        let (lease, retention) = (micros(request.lease).max(1), micros(request.retention));
        let park = u64::from(request.on_expiry == OnExpiry::Park) + 2 * u64::from(timed);
        let numbers = [lease, retention, (lease + retention).div_ceil(1_000), request.max_attempts.into(), park];
        Self::new(Script::Claim, numbers, &request.key, [claimed(request)])
    }

    pub(crate) fn renew(held: &ClaimHandle, lease: Duration) -> Self {
        Self::new(Script::Renew, [micros(lease)], &held.key, [guard(held)])
    }

    /// Creates a renewal that waits for durability. A repeated claim writes nothing, so it has nothing to wait for.
    pub(crate) fn confirm(held: &ClaimHandle, lease: Duration) -> Self {
        let mut call = Self::renew(held, lease);
        call.params.waits = true;
        call
    }

    /// Creates the completion of a first grant that replaces the record if it is exactly as granted. Returns `None` if the
    /// record of the grant is unknown.
    pub(crate) fn replace(held: &ClaimHandle, done: &Completion) -> Option<Self> {
        let (granted, terms, fencing) = (granted_record(held)?, held.terms.as_ref()?, held.fencing?);
        let consumed = consumed_record(fencing, terms.fingerprint, done.value.as_deref());
        let kept = micros(terms.lease).max(1) + micros(terms.retention);
        Some(Self::new(Script::Replace, [retain(done), kept], &held.key, [granted, consumed]).spread())
    }

    /// Creates a call that keeps a completed record until the clock has passed its number, if the clock was set back by more
    /// than the retention since the claim.
    ///
    /// Returns `None` if the retention is long enough. `now` is the server time of the completion, in µs.
    pub(crate) fn prolong(held: &ClaimHandle, done: &Completion, now: u64) -> Option<Self> {
        let (fencing, retain) = (held.fencing?.0, retain(done));
        if retain == 0 || fencing <= now + retain * 1_000 {
            return None;
        }
        let mut call = Self::replace(held, done)?;
        call.params.numbers[0] = (fencing - now).div_ceil(1_000) + 1;
        // The record is complete already. The call is a command again: the script expects a granted record.
        call.args[0] = call.args[1].clone();
        Some(call)
    }

    /// Creates the completion of a grant whose record may have changed.
    pub(crate) fn complete(held: &ClaimHandle, done: &Completion) -> Self {
        // The second number is the number of arguments per key.
        let call = match &done.value {
            Some(value) => {
                let args = [guard(held), [b"V", &**value].concat().into()];
                Self::new(Script::Complete, [retain(done), 2], &held.key, args)
            }
            None => Self::new(Script::Complete, [retain(done), 1], &held.key, [guard(held)]),
        };
        call.spread()
    }

    pub(crate) fn release(held: &ClaimHandle, release: &Release) -> Self {
        let numbers = [micros(release.delay), micros(release.retention)];
        let mut call = Self::new(Script::Release, numbers, &held.key, [guard(held), release.error.clone().into()]);
        call.params.verdict = match release.kind {
            ReleaseKind::Delete => b'X',
            ReleaseKind::Vacate => b'V',
            ReleaseKind::Refund => b'U',
            ReleaseKind::MarkFailed => b'F',
            ReleaseKind::MarkDead => b'D',
        };
        call
    }

    pub(crate) fn forget(key: &Key, expected: FencingToken, force: bool, retention: Duration) -> Self {
        let force = if force { b"1" } else { b"0" };
        let args = [digits(expected).as_slice().into(), force.as_slice().into()];
        Self::new(Script::Forget, [micros(retention)], key, args)
    }

    pub(crate) fn look(key: &Key) -> Self {
        Self::new(Script::Look, [], key, [])
    }

    /// Creates a call that reads a record if it has one of the `states`; see the script.
    pub(crate) fn search(key: &Key, states: u64) -> Self {
        Self::new(Script::Search, [states], key, [])
    }

    pub(crate) fn watch(key: &Key) -> Self {
        Self::new(Script::Watch, [], key, [])
    }

    pub(crate) fn recall(key: &Key) -> Self {
        Self::new(Script::Recall, [], key, [])
    }

    pub(crate) fn remember(key: &Key, fact: Vec<u8>, keep: Duration) -> Self {
        Self::new(Script::Remember, [millis(keep)], key, [fact.into()])
    }

    pub(crate) fn bar(key: &Key, keep: Duration) -> Self {
        Self::new(Script::Bar, [millis(keep)], key, [])
    }

    /// Creates a call that records an encoded step.
    pub(crate) fn note(held: &ClaimHandle, entry: Vec<u8>, keep: Duration) -> Self {
        Self::new(Script::Note, [millis(keep)], &held.key, [guard(held), entry.into()])
    }

    pub(crate) fn steps(held: &ClaimHandle, keep: Duration) -> Self {
        Self::new(Script::Steps, [millis(keep)], &held.key, [guard(held)])
    }

    pub(crate) fn line(stream: &Key) -> Self {
        Self::new(Script::Line, [], stream, [])
    }

    pub(crate) fn compare_and_swap(stream: &Key, seen: Option<&[u8]>, next: &[u8], keep: Duration) -> Self {
        let keep = if keep >= LONGEST { 0 } else { millis(keep).max(1) };
        // A swap that needs no more memory is allowed even when the server's memory is full.
        let script =
            if seen.is_some_and(|seen| next.len() <= seen.len()) { Script::Shrink } else { Script::CompareAndSwap };
        let seen = seen.map_or_else(|| b"N".to_vec(), |seen| [b"S", seen].concat());
        Self::new(script, [keep], stream, [seen.into(), next.into()])
    }

    pub(crate) fn purge(key: &Key) -> Self {
        Self::new(Script::Purge, [], key, [])
    }

    fn new<const N: usize, const M: usize>(script: Script, numbers: [u64; N], key: &Key, args: [Arc<[u8]>; M]) -> Self {
        let mut all = [0; 5];
        all[..N].copy_from_slice(&numbers);
        let waits = matches!(
            script,
            Script::Claim | Script::Complete | Script::Replace | Script::Note | Script::CompareAndSwap | Script::Shrink
        );
        let params = ScriptParams { script, verdict: 0, numbers: all, given: N, waits, spread: 0 };
        let mut args = args.into_iter();
        Self { params, key: key.clone(), args: [args.next(), args.next()] }
    }

    /// Adds a jitter to the retention, which is the first number.
    fn spread(mut self) -> Self {
        let retain = self.params.numbers[0];
        self.params.spread = if retain <= SPREAD_FROM_MS { 0 } else { (retain / 128).min(900_000) };
        self
    }
}

/// Encodes calls with the same parameters as one command.
pub(crate) fn command(scripts: &ScriptSet, calls: &[&ScriptCall], in_full: bool) -> Cmd {
    let Some(ScriptCall { params, .. }) = calls.first() else { return Cmd::new() };
    let mut cmd = Cmd::with_capacity(8 + calls.len() * 3, 128 + calls.len() * 160);
    scripts.add_call(&mut cmd, params.script as usize, in_full);
    let with_steps = matches!(params.script, Script::Note | Script::Steps);
    cmd.arg(calls.len() * if with_steps { 2 } else { 1 });
    let of_streams = matches!(params.script, Script::Line | Script::CompareAndSwap | Script::Shrink);
    for call in calls {
        if of_streams {
            cmd.arg([call.key.as_str(), ORDER_TABLE_SUFFIX].concat());
            continue;
        }
        cmd.arg(call.key.as_str());
        if with_steps {
            cmd.arg([call.key.as_str(), STEPS_SUFFIX].concat());
        }
    }
    if params.verdict != 0 {
        cmd.arg(&[params.verdict][..]);
    }
    for (at, number) in params.numbers[..params.given].iter().enumerate() {
        cmd.arg(if at == 0 { *number + jitter(params.spread) } else { *number });
    }
    for call in calls {
        for arg in call.args.iter().flatten() {
            cmd.arg(&**arg);
        }
    }
    cmd
}
