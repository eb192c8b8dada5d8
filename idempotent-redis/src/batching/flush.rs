//! Sending of batched calls over a connection, and the splitting of the replies.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redis::{Cmd, Pipeline, Value};

use crate::batching::call::native::{native_command, native_reply, parse_time};
use crate::batching::call::reply::{ScriptReply, parse_replies};
use crate::batching::call::{MAX_KEYS_PER_COMMAND, ScriptCall, command};
use crate::connection::{Connection, refused};
use crate::durability::{Durability, UnconfirmedReplicas};
use crate::failure::{CallFailure, FailureKind};
use crate::scripts::{Script, ScriptSet};

/// Settings for sending calls.
#[derive(Clone, Debug)]
pub(crate) struct SendOptions {
    pub(crate) scripts: ScriptSet,
    /// True if a script may use keys of several slots.
    pub(crate) joins: bool,
    pub(crate) durability: Durability,
    /// True if the servers have `SET … IFEQ`. Becomes false once a server refuses the option, for example after a failover
    /// to an older server.
    pub(crate) compares_natively: Arc<AtomicBool>,
}

impl SendOptions {
    fn is_native(&self, call: &ScriptCall) -> bool {
        call.params.script == Script::Replace && self.compares_natively.load(Ordering::Relaxed)
    }
}

/// Consecutive calls with the same parameters, which share a command.
#[derive(Clone, Copy)]
struct CallGroup<'a> {
    calls: &'a [&'a ScriptCall],
    /// True if the command is not a script. Such a group has one call.
    is_native: bool,
}

/// The encoding of one round trip.
#[derive(Clone, Copy)]
struct RoundTrip {
    /// True if scripts are sent in full instead of by hash.
    in_full: bool,
    /// True if the node does not own the slot yet.
    asking: bool,
}

/// The reply to a command, and the replicas that did not acknowledge it.
type GroupReply = Result<(Value, Option<UnconfirmedReplicas>), CallFailure>;

/// Sends one call that does not wait for replicas or a disk, as one command.
pub(crate) async fn send_one(
    connection: &Connection,
    options: &SendOptions,
    call: &ScriptCall,
) -> Result<ScriptReply, CallFailure> {
    if options.is_native(call) {
        return single(Box::pin(send_all(connection, options, &[call], false)).await);
    }
    let scripts = &options.scripts;
    let reply = match connection.send(&command(scripts, &[call], false)).await {
        // Each server has a script cache of its own, which may be flushed at any time. The script is resent in full.
        Err(failure) if failure.kind == FailureKind::NoScript => {
            Box::pin(connection.send(&command(scripts, &[call], true))).await?
        }
        reply => reply?,
    };
    parse_replies(call.params.script, 1, reply)?.pop().ok_or_else(missing_reply)?.into_result()
}

/// Sends calls in order. Consecutive calls with the same parameters share a command.
///
/// With `asking`, the node is the one that the slot is being moved to: each command needs an `ASKING` directly before
/// it.
pub(crate) async fn send_all(
    connection: &Connection,
    options: &SendOptions,
    calls: &[&ScriptCall],
    asking: bool,
) -> Vec<Result<ScriptReply, CallFailure>> {
    let groups: Vec<CallGroup<'_>> =
        calls.chunk_by(|one, next| one.params == next.params).flat_map(|alike| groups(options, alike)).collect();
    let mut reply = round_trip(connection, options, &groups, RoundTrip { in_full: false, asking }).await;
    let uncached: Vec<usize> = (0..reply.len()).filter(|at| no_script(&reply[*at])).collect();
    if !uncached.is_empty() {
        let again: Vec<CallGroup<'_>> = uncached.iter().map(|at| groups[*at]).collect();
        for (at, answer) in
            uncached.into_iter().zip(round_trip(connection, options, &again, RoundTrip { in_full: true, asking }).await)
        {
            reply[at] = answer;
        }
    }
    groups.into_iter().zip(reply).flat_map(|(group, reply)| split_replies(group, reply)).collect()
}

/// Divides calls with the same parameters into the groups that share a command.
fn groups<'a>(options: &SendOptions, alike: &'a [&'a ScriptCall]) -> impl Iterator<Item = CallGroup<'a>> {
    let is_native = alike.first().is_some_and(|call| options.is_native(call));
    let most = if options.joins && !is_native { MAX_KEYS_PER_COMMAND } else { 1 };
    alike.chunks(most).map(move |calls| CallGroup { calls, is_native })
}

fn no_script(reply: &GroupReply) -> bool {
    matches!(reply, Err(failure) if failure.kind == FailureKind::NoScript)
}

/// Returns one reply per group, or the same error for all groups.
async fn round_trip(
    connection: &Connection,
    options: &SendOptions,
    groups: &[CallGroup<'_>],
    trip: RoundTrip,
) -> Vec<GroupReply> {
    let wait = if groups.iter().any(|group| needs_wait(group.calls)) { options.durability.command() } else { None };
    let has_native = groups.iter().any(|group| group.is_native);
    let reply = match groups {
        [] => return Vec::new(),
        [group] if wait.is_none() && !trip.asking && !has_native => {
            connection.send(&write(options, group, trip)).await.map(|value| vec![value])
        }
        _ => {
            let mut pipeline = Pipeline::with_capacity(groups.len() * 2 + 2);
            for group in groups {
                if trip.asking {
                    pipeline.add_command(Cmd::new().arg("ASKING").to_owned());
                }
                pipeline.add_command(write(options, group, trip));
            }
            if has_native {
                pipeline.add_command(Cmd::new().arg("TIME").to_owned());
            }
            if let Some(wait) = &wait {
                pipeline.add_command(wait.clone());
            }
            connection.send_pipeline(&pipeline).await
        }
    };
    let replies = reply.and_then(|mut values| {
        let unconfirmed = wait.and_then(|_| options.durability.unconfirmed(&values.pop().unwrap_or_default()));
        let now = if has_native { parse_time(&refused(values.pop().unwrap_or_default())?)? } else { 0 };
        let step = if trip.asking { 2 } else { 1 };
        if values.len() != groups.len() * step {
            return Err(CallFailure::ambiguous(
                "unexpected number of replies to a pipeline; is a proxy rewriting responses?",
            ));
        }
        let values = values.into_iter().skip(step - 1).step_by(step);
        let read = |(group, value): (&CallGroup<'_>, Value)| {
            let value = if group.is_native { read_native(options, value, now) } else { refused(value) };
            Ok((value?, unconfirmed))
        };
        Ok(groups.iter().zip(values).map(read).collect())
    });
    replies.unwrap_or_else(|failure| vec![Err(failure); groups.len()])
}

fn write(options: &SendOptions, group: &CallGroup<'_>, trip: RoundTrip) -> Cmd {
    match group.calls {
        [call] if group.is_native => native_command(call),
        calls => command(&options.scripts, calls, trip.in_full),
    }
}

/// Reads the reply to a native command. If the server refuses the command for another reason than its place or state, the
/// reply is the same as for a record that differs: the script, which follows, knows more cases and reports the error.
fn read_native(options: &SendOptions, value: Value, now: i64) -> Result<Value, CallFailure> {
    match refused(value) {
        Err(failure) if matches!(failure.kind, FailureKind::Store(_)) => {
            if failure.text().contains("syntax error") {
                options.compares_natively.store(false, Ordering::Relaxed);
            }
            native_reply(&Value::Nil, now)
        }
        reply => native_reply(&reply?, now),
    }
}

fn needs_wait(group: &[&ScriptCall]) -> bool {
    group.first().is_some_and(|call| call.params.waits)
}

fn split_replies(group: CallGroup<'_>, reply: GroupReply) -> Vec<Result<ScriptReply, CallFailure>> {
    let CallGroup { calls: group, is_native } = group;
    let Some(first) = group.first() else { return Vec::new() };
    let parsed = reply
        .and_then(|(reply, unconfirmed)| Ok((parse_replies(first.params.script, group.len(), reply)?, unconfirmed)));
    match parsed {
        Ok((replies, unconfirmed)) if replies.len() == group.len() => {
            replies.into_iter().map(|answer| ScriptReply { unconfirmed, is_native, ..answer }.into_result()).collect()
        }
        Ok(_) => vec![
            Err(CallFailure::ambiguous(
                "unexpected number of keys in a script reply; is a proxy rewriting responses?"
            ));
            group.len()
        ],
        Err(failure) => vec![Err(failure); group.len()],
    }
}

pub(crate) fn single(mut all: Vec<Result<ScriptReply, CallFailure>>) -> Result<ScriptReply, CallFailure> {
    all.pop().unwrap_or_else(|| Err(missing_reply()))
}

fn missing_reply() -> CallFailure {
    CallFailure::ambiguous("unexpected empty reply; is a proxy rewriting responses?")
}
