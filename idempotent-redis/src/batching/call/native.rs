//! Completions by `SET … IFEQ`, for servers with this option.
use redis::{Cmd, Value};

use super::reply::{DIFFERS, unexpected_reply};
use super::{ScriptCall, jitter};
use crate::connection::text;
use crate::failure::CallFailure;

/// Encodes the completion of one record as a command that compares and sets, for servers with `SET … IFEQ`.
pub(crate) fn native_command(call: &ScriptCall) -> Cmd {
    let bytes = |at: usize| call.args[at].as_deref().unwrap_or_default();
    let (key, [retain, ..]) = (call.key.as_str(), call.params.numbers);
    let mut cmd = Cmd::with_capacity(7, 96 + key.len() + bytes(0).len() + bytes(1).len());
    cmd.arg("SET").arg(key).arg(bytes(1)).arg("IFEQ").arg(bytes(0));
    if retain > 0 {
        cmd.arg("PX").arg(retain + jitter(call.params.spread));
    }
    cmd
}

/// Converts the reply to a [`native_command`] into the reply of the script, which has the server time in µs.
pub(crate) fn native_reply(reply: &Value, now: i64) -> Result<Value, CallFailure> {
    match reply {
        Value::Okay => Ok(Value::Int(now)),
        Value::Nil => Ok(Value::Array(vec![Value::Int(now), Value::Int(1), Value::BulkString(vec![DIFFERS])])),
        _ => Err(unexpected_reply()),
    }
}

/// Parses the reply to `TIME`, in µs.
pub(crate) fn parse_time(reply: &Value) -> Result<i64, CallFailure> {
    let Value::Array(parts) = reply else { return Err(unexpected_reply()) };
    let part = |at: usize| text(parts.get(at)?)?.parse::<i64>().ok();
    let time = part(0).zip(part(1)).map(|(seconds, micros)| seconds * 1_000_000 + micros);
    time.ok_or_else(unexpected_reply)
}
