//! Replies to script calls.
use redis::Value;

use crate::durability::UnconfirmedReplicas;
use crate::failure::CallFailure;
use crate::scripts::Script;

/// Tag of the reply for a record that is not as granted.
pub(super) const DIFFERS: u8 = b'M';

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ScriptReply {
    /// Server time in µs since the Unix epoch.
    pub(crate) now: u64,
    pub(crate) body: ReplyBody,
    /// Missing replicas, if the write is less durable than requested.
    pub(crate) unconfirmed: Option<UnconfirmedReplicas>,
    /// True if the reply is that of a command, which does not know the time, instead of a script.
    pub(crate) is_native: bool,
}

impl ScriptReply {
    pub(super) fn new(now: u64, body: ReplyBody) -> Self {
        Self { now, body, unconfirmed: None, is_native: false }
    }

    /// Returns whether a record was not replaced because it is not as granted.
    pub(crate) fn differs(&self) -> bool {
        matches!(&self.body, ReplyBody::Tagged(reply) if reply.first() == Some(&DIFFERS))
    }

    /// Returns an error if a command inside the script failed, the same error as outside of a script.
    pub(crate) fn into_result(self) -> Result<Self, CallFailure> {
        match &self.body {
            ReplyBody::Tagged(reply) | ReplyBody::Value(Some(reply), _) => match reply.split_first() {
                Some((b'E', error)) => Err(CallFailure::from_script(&String::from_utf8_lossy(error))),
                _ => Ok(self),
            },
            _ => Ok(self),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ReplyBody {
    /// Nothing to report: the call succeeded, or the key was free.
    Empty,
    /// A tag byte and its payload; see the scripts.
    Tagged(Vec<u8>),
    /// The reply to `Look` and `Search`: the value and the expiry time in ms.
    Value(Option<Vec<u8>>, i64),
    /// The reply to `Watch` (whether the key is held) and to `Purge` (whether the key is gone).
    Flag(bool),
}

/// Splits the reply to a command into the replies of its calls.
pub(crate) fn parse_replies(script: Script, count: usize, value: Value) -> Result<Vec<ScriptReply>, CallFailure> {
    let items = match value {
        Value::Array(items) => items,
        // A bare time means that no key has anything to report.
        now @ Value::Int(_) if !matches!(script, Script::Watch | Script::Purge | Script::Look | Script::Search) => {
            vec![now]
        }
        _ => return Err(unexpected_reply()),
    };
    match script {
        Script::Watch | Script::Purge => {
            items.into_iter().map(|item| Ok(ScriptReply::new(0, ReplyBody::Flag(int(&item)? == 1)))).collect()
        }
        Script::Look | Script::Search => parse_look(count, items),
        _ => parse_common(count, items),
    }
}

fn parse_common(count: usize, items: Vec<Value>) -> Result<Vec<ScriptReply>, CallFailure> {
    let mut items = items.into_iter();
    let now = items.next().and_then(|now| u64::try_from(int(&now).ok()?).ok()).ok_or_else(unexpected_reply)?;
    let mut all = vec![ScriptReply::new(now, ReplyBody::Empty); count];
    while let (Some(index), Some(reply)) = (items.next(), items.next()) {
        let place = usize::try_from(int(&index)?).ok().and_then(|index| all.get_mut(index.checked_sub(1)?));
        match (place, reply) {
            (Some(place), Value::BulkString(reply)) => place.body = ReplyBody::Tagged(reply),
            _ => return Err(unexpected_reply()),
        }
    }
    Ok(all)
}

fn parse_look(count: usize, items: Vec<Value>) -> Result<Vec<ScriptReply>, CallFailure> {
    let mut items = items.into_iter();
    let now = items.next().and_then(|now| u64::try_from(int(&now).ok()?).ok()).ok_or_else(unexpected_reply)?;
    let mut all = Vec::with_capacity(count);
    while let (Some(seen), Some(ttl)) = (items.next(), items.next()) {
        let seen = match seen {
            Value::BulkString(bytes) => Some(bytes),
            Value::Nil | Value::Boolean(false) => None,
            _ => return Err(unexpected_reply()),
        };
        all.push(ScriptReply::new(now, ReplyBody::Value(seen, int(&ttl)?)));
    }
    if all.len() == count { Ok(all) } else { Err(unexpected_reply()) }
}

fn int(value: &Value) -> Result<i64, CallFailure> {
    if let Value::Int(number) = value { Ok(*number) } else { Err(unexpected_reply()) }
}

pub(super) fn unexpected_reply() -> CallFailure {
    CallFailure::ambiguous("unexpected script reply; is a proxy rewriting responses?")
}
