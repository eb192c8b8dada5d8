//! Sending of batched calls over a connection, and the splitting of the replies.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use redis::{Cmd, Pipeline, Value};

use crate::batching::call::native::{NativeForm, parse_time};
use crate::batching::call::reply::{ScriptReply, parse_replies};
use crate::batching::call::{MAX_KEYS_PER_COMMAND, ScriptCall, command};
use crate::batching::claim_form::ClaimForm;
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
    pub(crate) claims: ClaimForm,
}

impl SendOptions {
    /// Returns the command for each of these calls, which have the same parameters, or `None` if they are a script. `sent` is
    /// the current time.
    fn native_form(&self, connection: &Connection, alike: &[&ScriptCall], sent: Instant) -> Option<NativeForm> {
        let call = alike.first()?;
        // One script for several keys costs this process less than several commands.
        let is_joined = self.joins && alike.len() > 1;
        match call.params.script {
            Script::Replace if self.compares_natively.load(Ordering::Relaxed) => Some(NativeForm::Replace),
            Script::Claim if !call.params.is_scripted => match &self.claims {
                ClaimForm::Adaptive(share) if !is_joined && share.is_low() => {
                    connection.clock().number(sent).map(NativeForm::Claim)
                }
                ClaimForm::Command => connection.clock().any_number(sent).map(NativeForm::Claim),
                _ => None,
            },
            _ => None,
        }
    }

    /// Counts the claims of a group of calls that needed, or would have needed, the script.
    fn observe(&self, group: CallGroup<'_>, replies: &[ScriptReply]) {
        if let (ClaimForm::Adaptive(share), Some(Script::Claim)) =
            (&self.claims, group.calls.first().map(|call| call.params.script))
        {
            share.add(replies.iter().filter(|reply| reply.needed_script()).count(), replies.len());
        }
    }
}

/// Consecutive calls with the same parameters, which share a command.
#[derive(Clone, Copy)]
struct CallGroup<'a> {
    calls: &'a [&'a ScriptCall],
    /// The command, if the call is no script. Such a group has one call.
    native: Option<NativeForm>,
}

/// The encoding of one round trip.
#[derive(Clone, Copy)]
struct RoundTrip {
    /// True if scripts are sent in full instead of by hash.
    in_full: bool,
    /// True if the node does not own the slot yet.
    asking: bool,
    sent: Instant,
}

/// The replies to the calls of a group.
type GroupReply = Result<Vec<ScriptReply>, CallFailure>;

/// Sends one call that does not wait for replicas or a disk, as one command.
pub(crate) async fn send_one(
    connection: &Connection,
    options: &SendOptions,
    call: &ScriptCall,
) -> Result<ScriptReply, CallFailure> {
    let sent = Instant::now();
    if options.native_form(connection, &[call], sent).is_some() {
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
    let replies = parse_replies(call.params.script, 1, reply)?;
    learn_time(connection, &replies, sent);
    options.observe(CallGroup { calls: &[call], native: None }, &replies);
    replies.into_iter().next().ok_or_else(missing_reply)?.into_result()
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
    let sent = Instant::now();
    let groups: Vec<CallGroup<'_>> = calls
        .chunk_by(|one, next| one.params == next.params)
        .flat_map(|alike| groups(alike, options.joins, options.native_form(connection, alike, sent)))
        .collect();
    let trip = RoundTrip { in_full: false, asking, sent };
    let mut reply = round_trip(connection, options, &groups, trip).await;
    let uncached: Vec<usize> = (0..reply.len()).filter(|at| no_script(&reply[*at])).collect();
    if !uncached.is_empty() {
        let again: Vec<CallGroup<'_>> = uncached.iter().map(|at| groups[*at]).collect();
        let trip = RoundTrip { in_full: true, ..trip };
        for (at, answer) in uncached.into_iter().zip(round_trip(connection, options, &again, trip).await) {
            reply[at] = answer;
        }
    }
    groups.into_iter().zip(reply).flat_map(|(group, reply)| split_replies(options, group, reply)).collect()
}

/// Divides calls with the same parameters into the groups that share a command.
fn groups<'a>(
    alike: &'a [&'a ScriptCall],
    joins: bool,
    native: Option<NativeForm>,
) -> impl Iterator<Item = CallGroup<'a>> {
    let most = if joins && native.is_none() { MAX_KEYS_PER_COMMAND } else { 1 };
    alike.chunks(most).map(move |calls| CallGroup { calls, native })
}

fn no_script(reply: &GroupReply) -> bool {
    matches!(reply, Err(failure) if failure.kind == FailureKind::NoScript)
}

/// Returns the replies of each group, or the same error for all groups.
async fn round_trip(
    connection: &Connection,
    options: &SendOptions,
    groups: &[CallGroup<'_>],
    trip: RoundTrip,
) -> Vec<GroupReply> {
    let wait = if groups.iter().any(|group| needs_wait(group.calls)) { options.durability.command() } else { None };
    let has_native = groups.iter().any(|group| group.native.is_some());
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
        let replies: Vec<GroupReply> =
            groups.iter().zip(values).map(|(group, value)| read(options, *group, value, (now, unconfirmed))).collect();
        learn_time(connection, replies.iter().flatten().flatten(), trip.sent);
        Ok(replies)
    });
    replies.unwrap_or_else(|failure| vec![Err(failure); groups.len()])
}

fn write(options: &SendOptions, group: &CallGroup<'_>, trip: RoundTrip) -> Cmd {
    match (group.native, group.calls) {
        (Some(form), [call]) => form.command(call),
        (_, calls) => command(&options.scripts, calls, trip.in_full),
    }
}

/// Reads the reply to the command of a group. `now` is the server time after a native command.
fn read(
    options: &SendOptions,
    CallGroup { calls, native }: CallGroup<'_>,
    value: Value,
    (now, unconfirmed): (u64, Option<UnconfirmedReplicas>),
) -> GroupReply {
    let mut replies = match (native, calls) {
        (Some(form), [call]) => vec![read_native(options, form, call, (value, now))?],
        _ => parse_replies(calls.first().ok_or_else(missing_reply)?.params.script, calls.len(), refused(value)?)?,
    };
    for reply in &mut replies {
        reply.unconfirmed = unconfirmed;
    }
    Ok(replies)
}

/// Reads the reply to a native command. If the server refuses the command for another reason than its place or state, the
/// script, which follows, knows more cases and reports the error.
fn read_native(
    options: &SendOptions,
    form: NativeForm,
    call: &ScriptCall,
    (value, now): (Value, u64),
) -> Result<ScriptReply, CallFailure> {
    match refused(value) {
        Err(failure) if matches!(failure.kind, FailureKind::Store(_)) => {
            if matches!(form, NativeForm::Replace) && failure.text().contains("syntax error") {
                options.compares_natively.store(false, Ordering::Relaxed);
            }
            Ok(form.refused(now))
        }
        reply => form.reply(call, reply?, now),
    }
}

/// Learns the server's time from the first reply that has it.
fn learn_time<'a>(connection: &Connection, replies: impl IntoIterator<Item = &'a ScriptReply>, sent: Instant) {
    if let Some(reply) = replies.into_iter().find(|reply| reply.now > 0) {
        connection.clock().learn(reply.now, sent, Instant::now());
    }
}

fn needs_wait(group: &[&ScriptCall]) -> bool {
    group.first().is_some_and(|call| call.params.waits)
}

fn split_replies(
    options: &SendOptions,
    group: CallGroup<'_>,
    reply: GroupReply,
) -> Vec<Result<ScriptReply, CallFailure>> {
    let count = group.calls.len();
    match reply {
        Ok(replies) if replies.len() == count => {
            options.observe(group, &replies);
            replies.into_iter().map(ScriptReply::into_result).collect()
        }
        Ok(_) => vec![
            Err(CallFailure::ambiguous(
                "unexpected number of keys in a script reply; is a proxy rewriting responses?"
            ));
            count
        ],
        Err(failure) => vec![Err(failure); count],
    }
}

/// Returns the only reply.
pub(crate) fn single(mut all: Vec<Result<ScriptReply, CallFailure>>) -> Result<ScriptReply, CallFailure> {
    all.pop().unwrap_or_else(|| Err(missing_reply()))
}

fn missing_reply() -> CallFailure {
    CallFailure::ambiguous("unexpected empty reply; is a proxy rewriting responses?")
}
