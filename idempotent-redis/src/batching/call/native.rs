//! Calls that are commands instead of scripts: completions by `SET … IFEQ`, and claims by `SET … NX GET`.
use std::io::Write;

use redis::{Cmd, RedisWrite, Value};

use super::{CallArgument, DIFFERS, ReplyBody, ScriptCall, ScriptReply, jitter, unexpected_reply};
use crate::batching::clock_estimate::EstimatedNumber;
use crate::failure::CallFailure;
use crate::record::{is_consumed, record_head, record_tail};
use crate::startup::text;

/// The command that a call is sent as. The server's time follows in the same pipeline.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NativeForm {
    /// A completion, for servers with `SET … IFEQ`.
    Replace,
    /// A claim with this number.
    Claim(EstimatedNumber),
}

impl NativeForm {
    pub(crate) fn command(self, call: &ScriptCall) -> Cmd {
        match self {
            Self::Replace => replace(call),
            Self::Claim(estimated) => claim(call, estimated),
        }
    }

    /// Converts the reply to the command. `now` is the server time in µs after the command.
    pub(crate) fn reply(self, call: &ScriptCall, value: Value, now: u64) -> Result<ScriptReply, CallFailure> {
        let body = match (self, value) {
            (Self::Replace, Value::Okay) => ReplyBody::Empty,
            (Self::Replace, Value::Nil) => return Ok(self.refused(now)),
            (Self::Claim(estimated), Value::Nil) if estimated.is_safe(now) => {
                ReplyBody::Granted(idempotent_core::FencingToken(estimated.number))
            }
            (Self::Claim(_), Value::Nil) => ReplyBody::Late,
            // The remaining retention is missing.
            (Self::Claim(_), Value::BulkString(record)) if call.is_timed() && is_consumed(&record) => {
                ReplyBody::Undecided
            }
            (Self::Claim(_), Value::BulkString(mut record)) => {
                record.insert(0, b'R');
                ReplyBody::Tagged(record)
            }
            _ => return Err(unexpected_reply()),
        };
        Ok(ScriptReply { is_native: true, ..ScriptReply::new(now, body) })
    }

    /// Returns the reply for a command that the server refused: the script decides.
    pub(crate) fn refused(self, now: u64) -> ScriptReply {
        let body = match self {
            Self::Replace => ReplyBody::Tagged(vec![DIFFERS]),
            Self::Claim(_) => ReplyBody::Undecided,
        };
        ScriptReply { is_native: true, ..ScriptReply::new(now, body) }
    }
}

fn replace(call: &ScriptCall) -> Cmd {
    let bytes = |at: usize| call.args[at].as_ref().map_or(&[][..], CallArgument::bytes);
    let (key, [retain, ..]) = (call.key.as_str(), call.params.numbers);
    let mut cmd = Cmd::with_capacity(7, 96 + key.len() + bytes(0).len() + bytes(1).len());
    cmd.arg("SET").arg(key).arg(bytes(1)).arg("IFEQ").arg(bytes(0));
    if retain > 0 {
        cmd.arg("PX").arg(retain + jitter(call.params.spread));
    }
    cmd
}

fn claim(call: &ScriptCall, EstimatedNumber { number, ahead }: EstimatedNumber) -> Cmd {
    let claimed = call.args[0].as_ref().map_or(&[][..], CallArgument::bytes);
    let (key, [lease, retention, time_to_live, ..]) = (call.key.as_str(), call.params.numbers);
    let head = record_head(idempotent_core::FencingToken(number));
    let tail = record_tail([number, number, number.saturating_add(lease), retention, 0]);
    let mut cmd = Cmd::with_capacity(7, 64 + key.len() + head.len() + claimed.len() + tail.len());
    cmd.arg("SET").arg(key);
    let mut record = cmd.writer_for_next_arg();
    for part in [&head[..], claimed, &tail[..]] {
        // Writing to memory cannot fail.
        let _ = record.write_all(part);
    }
    drop(record);
    // The key outlasts the record, whose times are ahead of the server's clock.
    cmd.arg("NX").arg("GET").arg("PX").arg(time_to_live + ahead.div_ceil(1_000) + 1);
    cmd
}

/// Parses the reply to `TIME`, in µs.
pub(crate) fn parse_time(reply: &Value) -> Result<u64, CallFailure> {
    let Value::Array(parts) = reply else { return Err(unexpected_reply()) };
    let part = |at: usize| text(parts.get(at)?)?.parse::<u64>().ok();
    let time = part(0).zip(part(1)).map(|(seconds, micros)| seconds * 1_000_000 + micros);
    time.ok_or_else(unexpected_reply)
}
