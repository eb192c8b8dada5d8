//! One script call for one key, and calls joined into one.
use std::sync::Arc;

use idempotent_core::{ClaimRequest, Completion, Fencing, Held, Key, OnExpiry, Release, Verdict};
use redis::{Cmd, Value};

use crate::durability::Missing;
use crate::failure::Failure;
use crate::record::{ORDER_TABLE_SUFFIX, STEPS_SUFFIX, claimed, digits, guard, micros, millis};
use crate::scripts::{Script, Scripts};

/// Keys of one command: no other client waits longer than it takes.
pub(crate) const MOST: usize = 256;

/// What a script is asked for one key.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) terms: Terms,
    pub(crate) key: Key,
    args: [Option<Arg>; 2],
}

/// Shared with whoever still holds it, and with a turn.
#[derive(Clone, Debug)]
enum Arg {
    Own(Arc<[u8]>),
    Text(Arc<str>),
}

impl Arg {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Text(text) => text.as_bytes(),
        }
    }
}

/// What calls that are joined into one have in common: the script and the arguments before those of the keys.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Terms {
    pub(crate) script: Script,
    verdict: u8,
    numbers: [u64; 5],
    given: usize,
    /// Until it is as durable as the store's settings say. Renewals and releases do not: losing one costs time, and no
    /// guarantee.
    pub(crate) waits: bool,
    /// How much may be added to the first of them.
    spread: u64,
}

impl Terms {
    fn new<const N: usize>(script: Script, numbers: [u64; N]) -> Self {
        let mut all = [0; 5];
        all[..N].copy_from_slice(&numbers);
        let waits = matches!(script, Script::Claim | Script::Complete | Script::Note | Script::Redraw | Script::Shrink);
        Self { script, verdict: 0, numbers: all, given: N, waits, spread: 0 }
    }
}

/// A retention up to this ends to the ms; a longer one is spread over up to 1/128 more, at most a quarter of an hour, so
/// that what was written in one load does not end in one second.
const SPREAD_FROM_MS: u64 = 3_600_000;

fn spread(retain: u64) -> u64 {
    if retain <= SPREAD_FROM_MS { 0 } else { (retain / 128).min(900_000) }
}

/// Another for each command: what was written together ends apart.
fn jitter(spread: u64) -> u64 {
    let micros =
        || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |now| now.subsec_micros());
    if spread == 0 { 0 } else { u64::from(micros()).wrapping_mul(0x9e37_79b9_7f4a_7c15) % spread }
}

impl Call {
    /// `timed`: with the rest of its retention where the key is consumed.
    pub(crate) fn claim(request: &ClaimRequest, timed: bool) -> Self {
        let (lease, memory) = (micros(request.lease).max(1), micros(request.memory));
        let park = u64::from(request.on_expiry == OnExpiry::Park) + 2 * u64::from(timed);
        let numbers = [lease, memory, (lease + memory).div_ceil(1_000), request.max_attempts.into(), park];
        Self::new(Terms::new(Script::Claim, numbers), &request.key, [Some(Arg::Own(claimed(request))), None])
    }

    pub(crate) fn renew(held: &Held, lease: std::time::Duration) -> Self {
        Self::new(Terms::new(Script::Renew, [micros(lease)]), &held.key, [Some(Arg::Own(guard(held))), None])
    }

    /// A renewal that waits as a claim does: it writes where a repeated claim has nothing to write.
    pub(crate) fn confirm(held: &Held, lease: std::time::Duration) -> Self {
        let mut call = Self::renew(held, lease);
        call.terms.waits = true;
        call
    }

    pub(crate) fn complete(held: &Held, done: &Completion) -> Self {
        let retain = if done.retain >= crate::record::LONGEST { 0 } else { millis(done.retain) };
        let value = done.value.as_deref().map(|value| Arg::Own([b"V", value].concat().into()));
        // How many arguments each key has.
        let each = 1 + u64::from(value.is_some());
        let args = [Some(Arg::Own(guard(held))), value];
        let terms = Terms { spread: spread(retain), ..Terms::new(Script::Complete, [retain, each]) };
        Self::new(terms, &held.key, args)
    }

    pub(crate) fn release(held: &Held, release: &Release) -> Self {
        let mut terms = Terms::new(Script::Release, [micros(release.delay), micros(release.memory)]);
        terms.verdict = match release.verdict {
            Verdict::Delete => b'X',
            Verdict::Vacate => b'V',
            Verdict::Refund => b'U',
            Verdict::Fail => b'F',
            Verdict::Bury => b'D',
        };
        Self::new(terms, &held.key, [Some(Arg::Own(guard(held))), Some(Arg::Text(release.error.clone()))])
    }

    pub(crate) fn forget(key: &Key, expected: Fencing, force: bool, memory: std::time::Duration) -> Self {
        let force = if force { b"1" } else { b"0" };
        let args = [Some(Arg::Own(Arc::from(&digits(expected)[..]))), Some(Arg::Own(Arc::from(&force[..])))];
        Self::new(Terms::new(Script::Forget, [micros(memory)]), key, args)
    }

    pub(crate) fn look(key: &Key) -> Self {
        Self::new(Terms::new(Script::Look, []), key, [None, None])
    }

    pub(crate) fn watch(key: &Key) -> Self {
        Self::new(Terms::new(Script::Watch, []), key, [None, None])
    }

    pub(crate) fn recall(key: &Key) -> Self {
        Self::new(Terms::new(Script::Recall, []), key, [None, None])
    }

    pub(crate) fn remember(key: &Key, fact: Vec<u8>, keep: std::time::Duration) -> Self {
        Self::new(Terms::new(Script::Remember, [millis(keep)]), key, [Some(Arg::Own(fact.into())), None])
    }

    pub(crate) fn bar(key: &Key, keep: std::time::Duration) -> Self {
        Self::new(Terms::new(Script::Bar, [millis(keep)]), key, [None, None])
    }

    /// One step, encoded.
    pub(crate) fn note(held: &Held, entry: Vec<u8>, keep: std::time::Duration) -> Self {
        let args = [Some(Arg::Own(guard(held))), Some(Arg::Own(entry.into()))];
        Self::new(Terms::new(Script::Note, [millis(keep)]), &held.key, args)
    }

    pub(crate) fn steps(held: &Held, keep: std::time::Duration) -> Self {
        Self::new(Terms::new(Script::Steps, [millis(keep)]), &held.key, [Some(Arg::Own(guard(held))), None])
    }

    pub(crate) fn line(stream: &Key) -> Self {
        Self::new(Terms::new(Script::Line, []), stream, [None, None])
    }

    pub(crate) fn redraw(stream: &Key, seen: Option<&[u8]>, next: &[u8], keep: std::time::Duration) -> Self {
        let keep = if keep >= crate::record::LONGEST { 0 } else { millis(keep).max(1) };
        // What does not need more memory is let through when the server's memory is full.
        let script = if seen.is_some_and(|seen| next.len() <= seen.len()) { Script::Shrink } else { Script::Redraw };
        let seen = seen.map_or_else(|| b"N".to_vec(), |seen| [b"S", seen].concat());
        let args = [Some(Arg::Own(seen.into())), Some(Arg::Own(next.into()))];
        Self::new(Terms::new(script, [keep]), stream, args)
    }

    pub(crate) fn purge(key: &Key) -> Self {
        Self::new(Terms::new(Script::Purge, []), key, [None, None])
    }

    fn new(terms: Terms, key: &Key, args: [Option<Arg>; 2]) -> Self {
        Self { terms, key: key.clone(), args }
    }
}

/// Some calls of the same terms as one command.
pub(crate) fn command(scripts: &Scripts, calls: &[&Call], in_full: bool) -> Cmd {
    let Some(Call { terms, .. }) = calls.first() else { return Cmd::new() };
    let mut cmd = Cmd::with_capacity(8 + calls.len() * 3, 128 + calls.len() * 160);
    if in_full {
        cmd.arg("EVAL").arg(scripts.text(terms.script));
    } else {
        cmd.arg("EVALSHA").arg(scripts.sha(terms.script));
    }
    let with_steps = matches!(terms.script, Script::Note | Script::Steps);
    cmd.arg(calls.len() * if with_steps { 2 } else { 1 });
    let of_streams = matches!(terms.script, Script::Line | Script::Redraw | Script::Shrink);
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
    if terms.verdict != 0 {
        cmd.arg(&[terms.verdict][..]);
    }
    for (at, number) in terms.numbers[..terms.given].iter().enumerate() {
        cmd.arg(if at == 0 { *number + jitter(terms.spread) } else { *number });
    }
    for call in calls {
        for arg in call.args.iter().flatten() {
            cmd.arg(arg.bytes());
        }
    }
    cmd
}

/// What a script said of one key.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answer {
    /// The server's clock, µs.
    pub(crate) now: u64,
    pub(crate) said: Said,
    /// Where it was written, but not as durably as asked for.
    pub(crate) missing: Option<Missing>,
}

impl Answer {
    fn new(now: u64, said: Said) -> Self {
        Self { now, said, missing: None }
    }

    /// What a command inside the script was refused is that call's failure, as if it had been refused outside of it.
    pub(crate) fn judged(self) -> Result<Self, Failure> {
        match &self.said {
            Said::Text(said) | Said::Seen(Some(said), _) => match said.split_first() {
                Some((b'E', error)) => Err(Failure::of_script(&String::from_utf8_lossy(error))),
                _ => Ok(self),
            },
            _ => Ok(self),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Said {
    /// Nothing to add: done, or free.
    Plain,
    /// One letter and what it is about; see the scripts.
    Text(Vec<u8>),
    /// For `Look`: the value, and when the key ends, in ms.
    Seen(Option<Vec<u8>>, i64),
    /// For `Watch`: whether it is held; for `Purge`: whether it is gone.
    Held(bool),
}

/// Parts the answer to a command into those of its calls.
pub(crate) fn answers(script: Script, count: usize, value: Value) -> Result<Vec<Answer>, Failure> {
    let items = match value {
        Value::Array(items) => items,
        // The time alone: nothing to add to any of them.
        now @ Value::Int(_) if !matches!(script, Script::Watch | Script::Purge | Script::Look) => vec![now],
        _ => return Err(odd()),
    };
    match script {
        Script::Watch | Script::Purge => {
            items.into_iter().map(|item| Ok(Answer::new(0, Said::Held(int(&item)? == 1)))).collect()
        }
        Script::Look => looked(count, items),
        _ => told(count, items),
    }
}

fn told(count: usize, items: Vec<Value>) -> Result<Vec<Answer>, Failure> {
    let mut items = items.into_iter();
    let now = items.next().and_then(|now| u64::try_from(int(&now).ok()?).ok()).ok_or_else(odd)?;
    let mut all = vec![Answer::new(now, Said::Plain); count];
    while let (Some(index), Some(said)) = (items.next(), items.next()) {
        let place = usize::try_from(int(&index)?).ok().and_then(|index| all.get_mut(index.checked_sub(1)?));
        match (place, said) {
            (Some(place), Value::BulkString(said)) => place.said = Said::Text(said),
            _ => return Err(odd()),
        }
    }
    Ok(all)
}

fn looked(count: usize, items: Vec<Value>) -> Result<Vec<Answer>, Failure> {
    let mut items = items.into_iter();
    let now = items.next().and_then(|now| u64::try_from(int(&now).ok()?).ok()).ok_or_else(odd)?;
    let mut all = Vec::with_capacity(count);
    while let (Some(seen), Some(ttl)) = (items.next(), items.next()) {
        let seen = match seen {
            Value::BulkString(bytes) => Some(bytes),
            Value::Nil | Value::Boolean(false) => None,
            _ => return Err(odd()),
        };
        all.push(Answer::new(now, Said::Seen(seen, int(&ttl)?)));
    }
    if all.len() == count { Ok(all) } else { Err(odd()) }
}

fn int(value: &Value) -> Result<i64, Failure> {
    if let Value::Int(number) = value { Ok(*number) } else { Err(odd()) }
}

fn odd() -> Failure {
    Failure::ambiguous(
        "the server answered a script in a form that is not the script's: is something between it and us?",
    )
}
