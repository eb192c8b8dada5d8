//! Sending of messages, in batches per slot.
use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::join_all;
use idempotent_core::{StoreError, Timestamp};
use idempotent_mq::{DelayError, DelayErrorKind};

use super::message::{DelayMessage, SendReceipt, check_length, refuse};
use super::payload::StoredPayload;
use super::queue::DelayQueue;
use super::received::id_of;
use super::replies::{ReplyItems, delay_error, unexpected_reply};
use super::scripts::DelayScript;
use super::servers::{SIZE_LIMIT, ScriptArgs};
use super::slot_calls::MAX_BATCH;

/// Maximum size of a batch in bytes, unless a single message is larger. Other clients wait while the server runs a
/// script. No server has a lower limit.
const MOST_BYTES: usize = 1 << 20;

/// An encoded message, and the index of its result.
struct EncodedMessage {
    at: usize,
    kind: &'static str,
    given: u64,
    name: String,
    payload: Vec<u8>,
    takes_past: bool,
}

type IndexedResults = Vec<(usize, Result<SendReceipt, DelayError>)>;

impl DelayQueue {
    /// Stores a message until it is due. A message with an id or a merge key can safely be resent after an ambiguous
    /// error.
    ///
    /// # Errors
    /// `Refused` for an invalid message: a `time_range` of 0 ms, a priority up to 16, a fixed time in the past, or more bytes than the
    /// server's `proto-max-bulk-len`. Without `+config|get`, the last one is `Ambiguous`. Other errors by [`kind`](DelayError::kind).
    ///
    /// # Cancellation
    /// The message may or may not be stored.
    pub async fn send(&self, message: &DelayMessage) -> Result<SendReceipt, DelayError> {
        let sent = self.send_all(std::slice::from_ref(message)).await.pop();
        sent.unwrap_or_else(|| Err(delay_error("sending", unexpected_reply("sending"))))
    }

    /// Stores messages in batches of up to 256 messages or 1 MiB per slot. Slots are processed concurrently.
    ///
    /// The messages of a slot are stored in order. The results have the order of `messages`.
    ///
    /// # Errors
    /// One result per message, as for [`send`](Self::send). An invalid message does not affect the others. After a
    /// failed batch, no more messages are sent to the same slot; these fail with `NotApplied`.
    ///
    /// # Cancellation
    /// Some messages may be stored.
    pub async fn send_all(&self, messages: &[DelayMessage]) -> Vec<Result<SendReceipt, DelayError>> {
        let (mut results, mut slots) =
            (IndexedResults::with_capacity(messages.len()), BTreeMap::<u16, Vec<EncodedMessage>>::new());
        for (at, message) in messages.iter().enumerate() {
            match EncodedMessage::new(at, message) {
                Ok(ready) => slots.entry(self.slot_for(message.basis())).or_default().push(ready),
                Err(refused) => results.push((at, Err(refused))),
            }
        }
        let sent = join_all(slots.iter().map(|(slot, ready)| self.send_to(*slot, ready))).await;
        results.extend(sent.into_iter().flatten());
        results.sort_by_key(|(at, _)| *at);
        results.into_iter().map(|(_, sent)| sent).collect()
    }

    /// Sends the batches of a slot one after the other, until one fails.
    async fn send_to(&self, slot: u16, ready: &[EncodedMessage]) -> IndexedResults {
        let mut results = IndexedResults::with_capacity(ready.len());
        let mut failed = false;
        for step in steps(ready) {
            let places = step.iter().map(|ready| ready.at);
            if failed {
                results.extend(places.map(|at| (at, Err(skipped()))));
                continue;
            }
            match self.send_step(slot, step).await {
                Ok(sent) => results.extend(places.zip(sent)),
                Err(error) => {
                    if let Some(refused) = self.too_large(slot, step).await {
                        results.extend(places.zip([Err(refused)]));
                        continue;
                    }
                    let error = Arc::new(error);
                    results.extend(places.map(|at| (at, Err(delay_error("sending", error.clone())))));
                    failed = true;
                }
            }
        }
        results
    }

    /// Returns the refusal of a message that is larger than the server accepts. The server ends the connection at such a message,
    /// often before its error can be read.
    async fn too_large(&self, slot: u16, step: &[EncodedMessage]) -> Option<DelayError> {
        let [EncodedMessage { payload, .. }] = step else { return None };
        if payload.len() <= MOST_BYTES {
            return None;
        }
        let limit = self.0.servers.size_limit(self.keys(slot)).await?;
        let text = || {
            let size = payload.len();
            format!("the message has {size} bytes, and `{SIZE_LIMIT}` of the server is {limit}; raise it, or send less")
        };
        (payload.len() > limit).then(|| DelayError::new(DelayErrorKind::Refused, text()))
    }

    async fn send_step(
        &self,
        slot: u16,
        step: &[EncodedMessage],
    ) -> Result<Vec<Result<SendReceipt, DelayError>>, StoreError> {
        let mut args = ScriptArgs::new();
        for ready in step {
            args = args.text(ready.kind).number(ready.given).text(&ready.name).text(&ready.payload);
            args = args.number(u64::from(ready.takes_past));
        }
        let mut items = ReplyItems::of(self.0.servers.call(DelayScript::Send, self.keys(slot), &args).await?);
        let sent = |items: &mut ReplyItems| step.iter().map(|ready| ready.parse_sent(slot, items)).collect();
        items.as_mut().and_then(sent).ok_or_else(|| unexpected_reply("sending"))
    }
}

impl EncodedMessage {
    fn new(at: usize, message: &DelayMessage) -> Result<Self, DelayError> {
        let (kind, given) = message.script_kind()?;
        if let Some(basis) = &message.basis {
            check_length("the slot basis", basis)?;
        }
        let payload = StoredPayload::encode(message.business_key.as_deref(), &message.headers, &message.body);
        Ok(Self { at, kind, given, name: message.name(), payload, takes_past: message.takes_past() })
    }

    fn parse_sent(&self, slot: u16, items: &mut ReplyItems) -> Option<Result<SendReceipt, DelayError>> {
        let (kept, member, at) = (items.number()?, items.text()?, items.number()?);
        Some(match kept {
            0 => refuse(format!(
                "fixed_time is {} µs after the server's {at}; it must be in the future; use `DelayMessage::due` for a \
                 time that may have passed",
                i128::from(self.given) - i128::from(at)
            )),
            kept => Ok(SendReceipt { id: id_of(&self.name, slot, &member), at: Timestamp(at), is_new: kept == 1 }),
        })
    }
}

/// Splits messages into batches of at most [`MAX_BATCH`] messages and [`MOST_BYTES`]. A larger message is a batch of
/// its own.
fn steps(ready: &[EncodedMessage]) -> Vec<&[EncodedMessage]> {
    let (mut steps, mut start, mut bytes) = (Vec::new(), 0, 0);
    for (at, next) in ready.iter().enumerate() {
        let size = next.name.len() + next.payload.len();
        if at > start && (at - start == MAX_BATCH || bytes + size > MOST_BYTES) {
            steps.push(&ready[start..at]);
            (start, bytes) = (at, 0);
        }
        bytes += size;
    }
    if start < ready.len() {
        steps.push(&ready[start..]);
    }
    steps
}

fn skipped() -> DelayError {
    let text = "sending: skipped because an earlier message of the same slot failed; resend it after that one";
    DelayError::new(DelayErrorKind::NotApplied, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(bodies: &[usize]) -> Vec<usize> {
        let ready = |(at, size): (usize, &usize)| {
            let (name, payload) = (String::new(), vec![0; *size]);
            EncodedMessage { at, kind: "a", given: 0, name, payload, takes_past: true }
        };
        let ready: Vec<_> = bodies.iter().enumerate().map(ready).collect();
        let steps = steps(&ready);
        assert!(steps.iter().copied().flatten().map(|ready| ready.at).eq(0..bodies.len()), "each once, in its order");
        steps.iter().map(|step| step.len()).collect()
    }

    #[test]
    fn a_batch_has_256_messages_or_1_mib_and_a_larger_message_is_sent_alone() {
        let mib = 1 << 20;
        assert_eq!(sizes(&[]), [0; 0]);
        assert_eq!(sizes(&[1]), [1]);
        assert_eq!(sizes(&[1; 513]), [256, 256, 1]);
        assert_eq!(sizes(&[mib / 2, mib / 2, 1]), [2, 1]);
        assert_eq!(sizes(&[1, mib, 1, 3 * mib, 2 * mib, 0]), [1, 1, 1, 1, 1, 1]);
    }
}
