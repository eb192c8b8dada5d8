//! Calls that are commands instead of scripts: completions by `SET … IFEQ`, and claims by `SET … NX GET`.
use std::io::Write;

use redis::{Cmd, RedisWrite, Value};

use super::reply::{DIFFERS, ReplyBody, ScriptReply, unexpected_reply};
use super::{CallArgument, ScriptCall, jitter};
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

#[cfg(test)]
#[allow(clippy::panic, clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use idempotent_core::{ClaimRequest, FencingToken, Identity, OwnerToken, Scene};

    use super::*;

    const ESTIMATED: EstimatedNumber = EstimatedNumber { number: 1_790_000_000_000_000, ahead: 1_500 };
    const FORM: NativeForm = NativeForm::Claim(ESTIMATED);

    fn call(is_timed: bool) -> ScriptCall {
        let key = Identity::new(Scene::Mq, "orders", "o-1").key("shop").unwrap();
        let lease = Duration::from_secs(30);
        let request = ClaimRequest { owner: OwnerToken(1), lease, ..ClaimRequest::new(key).unwrap() };
        ScriptCall::claim(&request, is_timed)
    }

    fn body(is_timed: bool, value: Value, now: u64) -> ReplyBody {
        FORM.reply(&call(is_timed), value, now).unwrap().body
    }

    #[test]
    fn the_key_of_a_claim_outlasts_the_record() {
        let command = FORM.command(&call(false));
        let words = command.args_iter().filter_map(|arg| match arg {
            redis::Arg::Simple(word) => Some(word.to_vec()),
            _ => None,
        });
        let words: Vec<_> = words.collect();
        let [set, _, record, options @ .., time_to_live] = &words[..] else { panic!("{words:?}") };
        assert_eq!((&set[..], options), (&b"SET"[..], &[b"NX".to_vec(), b"GET".to_vec(), b"PX".to_vec()][..]));
        // A lease of 30 s and a retention of one hour, up to 2 ms ahead, and a further ms.
        assert_eq!(time_to_live, b"3630003");
        let found = crate::record::decode(record, idempotent_core::Timestamp::FOREVER).unwrap();
        assert_eq!((found.fencing.0, found.attempt, found.first_seen.0), (ESTIMATED.number, 1, ESTIMATED.number));
        assert_eq!(found.expires_at.0, ESTIMATED.number + 3_630_000_000);
    }

    #[test]
    fn a_written_claim_is_granted_if_the_clock_has_not_passed_its_number() {
        let granted = ReplyBody::Granted(FencingToken(ESTIMATED.number));
        for (now, expected) in [
            (ESTIMATED.number - 1_501, ReplyBody::Late),
            (ESTIMATED.number - 1_500, granted.clone()),
            (ESTIMATED.number, granted),
            (ESTIMATED.number + 1, ReplyBody::Late),
        ] {
            assert_eq!(body(false, Value::Nil, now), expected, "{now}");
        }
    }

    #[test]
    fn only_the_script_returns_a_consumed_key_with_its_retention() {
        let consumed = || Value::BulkString(b"1790000000000000001".to_vec());
        let long = || Value::BulkString(vec![0x81, 0x60, 0]);
        let held = || Value::BulkString(vec![0x81, b'P', 0]);
        assert_eq!([body(true, consumed(), 1), body(true, long(), 1)], [ReplyBody::Undecided, ReplyBody::Undecided]);
        assert_eq!(body(true, held(), 1), ReplyBody::Tagged(vec![b'R', 0x81, b'P', 0]));
        assert_eq!(body(false, consumed(), 1), ReplyBody::Tagged(b"R1790000000000000001".to_vec()));
        assert!(FORM.reply(&call(false), Value::Int(1), 1).is_err());
        assert_eq!(FORM.refused(1).body, ReplyBody::Undecided);
    }
}
