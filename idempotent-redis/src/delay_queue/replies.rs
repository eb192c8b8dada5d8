//! Replies of the scripts that are one value.
use idempotent_mq::{Cancelled, DelayError};
use redis::Value;

use super::reply_items::Items;
use super::servers::{delay_error, strange};

pub(crate) fn items(said: Value, doing: &str) -> Result<Items, DelayError> {
    Items::of(said).ok_or_else(|| delay_error(doing, strange(doing)))
}

pub(crate) fn count(said: &Value, doing: &str) -> Result<u64, DelayError> {
    match said {
        Value::Int(count) => Ok(u64::try_from(*count).unwrap_or_default()),
        _ => Err(delay_error(doing, strange(doing))),
    }
}

pub(crate) fn cancelled(said: &Value) -> Result<Cancelled, DelayError> {
    match count(said, "cancelling")? {
        0 => Ok(Cancelled::Unknown),
        1 => Ok(Cancelled::Done),
        _ => Ok(Cancelled::Delivering),
    }
}
