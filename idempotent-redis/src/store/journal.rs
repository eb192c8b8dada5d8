//! The steps of runs. The steps have a key of their own in the slot of the record.
//!
//! ```text
//! version 0x81 | 'J' | when the record began, 7 bytes | entries, where later ones override earlier ones of the same name:
//!     state | place u32 | length of the name u16 | name | length of the value u32, all ones for none | value
//! ```
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::protocol::{self, Write};
use idempotent_core::{
    ClaimHandle, Record, Settled, StateKind, StepRecord, StepState, StepStore, StoreError, StoreErrorKind, StoredSteps,
    Timestamp,
};

use crate::RedisStore;
use crate::batching::call::ScriptCall;
use crate::batching::call::reply::ReplyBody;
use crate::record::foreign;
use crate::store::BUDGET;
use crate::store::replies;

const NONE: u32 = u32::MAX;

#[async_trait]
impl StepStore for RedisStore {
    async fn steps(&self, held: &ClaimHandle, keep: Duration) -> Result<StoredSteps, StoreError> {
        let reply = self.0.call(&ScriptCall::steps(held, keep), BUDGET).await?;
        match &reply.body {
            ReplyBody::Tagged(text) if text.first() == Some(&b'S') => Ok(StoredSteps::Steps(decode(&text[1..])?)),
            ReplyBody::Tagged(text) if text.first() == Some(&b'X') => {
                Err(foreign("the value is not the steps of a run"))
            }
            _ => match replies::settled(&reply, |found, now| protocol_answer(found, held, now))? {
                Settled::Lost { now } => Ok(StoredSteps::Lost { now }),
                Settled::Done => Ok(StoredSteps::Lost { now: StateKind::Absent }),
            },
        }
    }

    async fn note(&self, held: &ClaimHandle, step: &StepRecord, keep: Duration) -> Result<Settled, StoreError> {
        let reply = self.0.call(&ScriptCall::note(held, encode(step), keep), BUDGET).await?;
        match &reply.body {
            ReplyBody::Tagged(text) if text.first() == Some(&b'X') => {
                Err(foreign("the value is not the steps of a run"))
            }
            _ => replies::settled(&reply, |found, now| protocol_answer(found, held, now)),
        }
    }
}

/// Returns the protocol's answer for a record that the script did not change. The script always changes a held record.
fn protocol_answer(found: Option<&Record>, held: &ClaimHandle, now: Timestamp) -> (Settled, Write) {
    match protocol::begun(found, held, now) {
        Ok(_) => (Settled::Done, Write::Delete),
        Err(now) => (Settled::Lost { now }, Write::Keep),
    }
}

fn encode(step: &StepRecord) -> Vec<u8> {
    let mut out = vec![match step.state {
        StepState::Intended => b'I',
        StepState::Done => b'D',
        StepState::Undoing => b'U',
    }];
    out.extend(step.place.to_be_bytes());
    // Step names are far shorter than this limit.
    out.extend(u16::try_from(step.name.len()).unwrap_or(u16::MAX).to_be_bytes());
    out.extend(step.name.as_bytes());
    let length = step.value.as_ref().map_or(NONE, |value| u32::try_from(value.len()).unwrap_or(NONE - 1));
    out.extend(length.to_be_bytes());
    out.extend(step.value.iter().flat_map(|value| value.iter()));
    out
}

/// Decodes strictly, as for records.
fn decode(mut bytes: &[u8]) -> Result<Vec<StepRecord>, StoreError> {
    let mut steps = Vec::new();
    while !bytes.is_empty() {
        let (step, rest) = entry(bytes)
            .ok_or_else(|| StoreError::new(StoreErrorKind::Corrupt).because("the steps of a run are cut off"))?;
        protocol::note(&mut steps, &step);
        bytes = rest;
    }
    Ok(steps)
}

fn entry(bytes: &[u8]) -> Option<(StepRecord, &[u8])> {
    let ([state], rest) = bytes.split_first_chunk()?;
    let state = match state {
        b'I' => StepState::Intended,
        b'D' => StepState::Done,
        b'U' => StepState::Undoing,
        _ => return None,
    };
    let (place, rest) = rest.split_first_chunk()?;
    let (length, rest) = rest.split_first_chunk()?;
    let (name, rest) = rest.split_at_checked(u16::from_be_bytes(*length).into())?;
    let (length, rest) = rest.split_first_chunk()?;
    let (value, rest) = match u32::from_be_bytes(*length) {
        NONE => (None, rest),
        length => {
            let (value, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
            (Some(Arc::from(value)), rest)
        }
    };
    let name = std::str::from_utf8(name).ok()?.into();
    Some((StepRecord { name, place: u32::from_be_bytes(*place), state, value }, rest))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn steps_decode_as_encoded_and_truncated_ones_do_not() {
        let step = |name: &str, state, value: Option<&[u8]>| StepRecord {
            name: name.into(),
            place: 7,
            state,
            value: value.map(Arc::from),
        };
        for step in [
            step("a", StepState::Done, Some(b"\0\xff")),
            step("é", StepState::Done, Some(b"")),
            step("b", StepState::Intended, None),
            step("c", StepState::Undoing, None),
        ] {
            let bytes = encode(&step);
            assert_eq!(decode(&bytes).unwrap(), [step]);
            for cut in 1..bytes.len() {
                assert_eq!(decode(&bytes[..cut]).unwrap_err().kind(), StoreErrorKind::Corrupt);
            }
        }
    }
}
