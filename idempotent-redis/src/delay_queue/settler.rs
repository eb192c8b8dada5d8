//! Settlement of deliveries.
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::StoreError;
use idempotent_mq::{DeadLetter, Delivery, Settle, Settlement, SourceError, SourceErrorKind};
use redis::Value;

use super::queue::{DelayQueue, SettleResult};
use super::received::DeliveryReceipt;
use super::replies::{source_error, unexpected_reply};
use super::scripts::DelayScript;

/// The handle that settles a delivery. If a tag is dropped unsettled, the message is redelivered after the visibility
/// timeout.
pub struct DelayTag(pub(crate) DeliveryReceipt);

/// Shows nothing of the message.
impl fmt::Debug for DelayTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DelayTag").field("slot", &self.0.keys.slot()).finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub(crate) struct DelaySettler(pub(crate) DelayQueue);

#[async_trait]
impl Settle<DelayTag> for DelaySettler {
    async fn settle(&self, _: &Delivery, tag: &DelayTag, settlement: &Settlement) -> Result<(), SourceError> {
        let receipt = &tag.0;
        match settlement {
            Settlement::Ack => {
                let done = self.0.settle_each(DelayScript::Done, &[receipt], None).await;
                require_owned("acknowledging", done.map(|done| done == [SettleResult::Done]))
            }
            Settlement::Retry(retry) => {
                let marks = (retry.attempt, retry.first_at.0);
                let put = self.0.put_back(receipt, "a", retry.after, marks, &retry.reason).await;
                settle_result("retrying a message", put)
            }
            Settlement::DeadLetter(letter) => {
                require_owned("dead-lettering", self.0.bury(receipt, &encode_letter(letter)).await)
            }
            Settlement::GiveBack => self.give_back(receipt).await,
            other => {
                let text = format!("settlement `{}` is not supported by this source", other.name());
                Err(SourceError::new(SourceErrorKind::Fatal, text))
            }
        }
    }

    async fn keep_alive(&self, held: &[&DelayTag]) -> Result<(), SourceError> {
        let receipts: Vec<_> = held.iter().map(|tag| &tag.0).collect();
        let kept = self.0.settle_each(DelayScript::Keep, &receipts, Some(self.0.0.settings.visibility)).await;
        // A delivery that is already lost is not an error.
        kept.map(drop).map_err(|error| source_error("extending messages", error))
    }
}

impl DelaySettler {
    pub(crate) async fn give_back(&self, receipt: &DeliveryReceipt) -> Result<(), SourceError> {
        let put = self.0.put_back(receipt, "g", Duration::ZERO, (1, 0), "").await;
        settle_result("returning a message", put)
    }
}

fn settle_result(doing: &str, reply: Result<Value, StoreError>) -> Result<(), SourceError> {
    match reply {
        Ok(Value::Int(reply @ 0..=1)) => require_owned(doing, Ok(reply == 1)),
        Ok(_) => Err(source_error(doing, unexpected_reply(doing))),
        Err(error) => Err(source_error(doing, error)),
    }
}

fn require_owned(doing: &str, reply: Result<bool, StoreError>) -> Result<(), SourceError> {
    match reply {
        Ok(true) => Ok(()),
        Ok(false) => Err(SourceError::new(
            SourceErrorKind::Gone,
            format!("{doing}: the delivery is no longer held: it expired, was cancelled or was already settled"),
        )),
        Err(error) => Err(source_error(doing, error)),
    }
}

fn encode_letter(letter: &DeadLetter) -> String {
    let DeadLetter { reason, id, attempts, first_at, last_at, deaths, .. } = letter;
    let id = id.as_deref().unwrap_or_default();
    format!("{attempts} {} {} {deaths} {}:{id}{reason}", first_at.0, last_at.0, id.len())
}

/// Decodes a dead letter that [`encode_letter`] or a script has written.
pub(crate) fn decode_letter(text: &str) -> Option<DeadLetter> {
    let mut words = text.splitn(5, ' ');
    let mut number = || words.next()?.parse::<u64>().ok();
    let (attempts, first_at, last_at, deaths) = (number()?, number()?, number()?, number()?);
    let (size, rest) = words.next()?.split_once(':')?;
    let (id, reason) = rest.split_at_checked(size.parse().ok()?)?;
    let mut letter = DeadLetter::because(reason.to_owned(), idempotent_core::Timestamp(last_at));
    letter.id = Some(id.to_owned()).filter(|id| !id.is_empty());
    letter.first_at = idempotent_core::Timestamp(first_at);
    (letter.attempts, letter.deaths) = (attempts.try_into().ok()?, deaths.try_into().ok()?);
    Some(letter)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use idempotent_core::Timestamp;

    #[test]
    fn every_dead_letter_decodes_as_encoded() {
        let mut letter = DeadLetter::because("no such customer: größe 1 2 3:4", Timestamp(9));
        assert_eq!(decode_letter(&encode_letter(&letter)).unwrap(), letter);
        (letter.id, letter.attempts, letter.deaths) = (Some("a:b-17 ".to_owned()), 17, 3);
        letter.first_at = Timestamp(1_700_000_000_123_457);
        assert_eq!(decode_letter(&encode_letter(&letter)).unwrap(), letter);
        assert_eq!(decode_letter("1 2 3"), None);
        assert_eq!(decode_letter("1 2 3 4 9:short"), None);
    }
}
