//! Parsing of script replies that are a single value.
use idempotent_mq::{Cancelled, DelayError};
use redis::Value;

use super::reply_items::ReplyItems;
use super::servers::{delay_error, unexpected_reply};

pub(crate) fn items(reply: Value, doing: &str) -> Result<ReplyItems, DelayError> {
    ReplyItems::of(reply).ok_or_else(|| delay_error(doing, unexpected_reply(doing)))
}

pub(crate) fn count(reply: &Value, doing: &str) -> Result<u64, DelayError> {
    match reply {
        Value::Int(count) => Ok(u64::try_from(*count).unwrap_or_default()),
        _ => Err(delay_error(doing, unexpected_reply(doing))),
    }
}

pub(crate) fn cancelled(reply: &Value) -> Result<Cancelled, DelayError> {
    match count(reply, "cancelling")? {
        0 => Ok(Cancelled::Unknown),
        1 => Ok(Cancelled::Done),
        _ => Ok(Cancelled::Delivering),
    }
}
