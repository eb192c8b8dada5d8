//! A message in delivery.
use std::fmt;
use std::sync::Arc;

use idempotent_core::Timestamp;
use idempotent_mq::{DeadLetter, Headers};

use super::layout::SlotKeys;
use super::payload::StoredPayload;
use super::replies::split_stored;

/// A delivery of a message. The delivery expires after the visibility timeout; the message is then redelivered.
#[derive(Clone)]
#[non_exhaustive]
pub struct DelayDelivery {
    /// Id of the message, the same in each delivery.
    pub id: String,
    /// Business key that the producer has set.
    pub business_key: Option<String>,
    /// Headers, as sent.
    pub headers: Headers,
    /// Body, byte for byte as sent.
    pub body: Vec<u8>,
    /// Number of the attempt, starting at 1. Each rollback and each expired delivery adds one.
    pub attempt: u32,
    /// Number of deliveries, including this one.
    pub delivered: u32,
    /// Number of times that the message became a dead letter.
    pub deaths: u32,
    /// Time of the first delivery.
    pub first_at: Timestamp,
    /// Reason for the last retry, as given by the consumer.
    pub last_error: Option<String>,
    /// Slot of the topic.
    pub slot: u16,
    pub(crate) receipt: DeliveryReceipt,
}

/// The identity of a delivery: the message and the number of the delivery.
#[derive(Clone)]
pub(crate) struct DeliveryReceipt {
    pub(crate) keys: Arc<SlotKeys>,
    pub(crate) member: String,
    pub(crate) name: String,
    pub(crate) number: u32,
    /// Number of the attempt, as a consumer counts it.
    pub(crate) mark: u32,
}

/// A message as the script returns it, with an encoded payload.
pub(crate) struct RawDelivery {
    pub(crate) receipt: DeliveryReceipt,
    pub(crate) deaths: u32,
    pub(crate) first_at: Timestamp,
    slot: u16,
    used: u32,
    why: String,
    value: Vec<u8>,
}

impl RawDelivery {
    /// Parses a delivery. A first delivery has no state. `now` is the time of the delivery.
    pub(crate) fn read(
        member: &str,
        state: Option<Vec<u8>>,
        value: Vec<u8>,
        slot: u16,
        keys: &Arc<SlotKeys>,
        now: u64,
    ) -> Option<Self> {
        let state = state.unwrap_or_else(|| format!("1 1 0 0 {now} ").into_bytes());
        let mut words = state.splitn(6, |byte| *byte == b' ');
        let mut number = || std::str::from_utf8(words.next()?).ok()?.parse::<u64>().ok();
        let mut small = || u32::try_from(number()?).ok();
        let (taken, mark, used, deaths) = (small()?, small()?, small()?, small()?);
        let (first_at, why) = (Timestamp(number()?), words.next()?);
        let name = split_stored(&value).map(|(name, _)| name).unwrap_or_default();
        let receipt = DeliveryReceipt { keys: keys.clone(), member: member.to_owned(), name, number: taken, mark };
        let why = String::from_utf8_lossy(why).into_owned();
        Some(Self { receipt, deaths, first_at, slot, used, why, value })
    }

    pub(crate) fn dead(mut receipt: DeliveryReceipt, slot: u16, letter: Option<&DeadLetter>, value: Vec<u8>) -> Self {
        receipt.name = split_stored(&value).map(|(name, _)| name).unwrap_or_default();
        let first_at = letter.map_or(Timestamp(0), |letter| letter.first_at);
        let deaths = letter.map_or(1, |letter| letter.deaths);
        Self { receipt, deaths, first_at, slot, used: 0, why: String::new(), value }
    }

    /// Decodes the payload.
    ///
    /// # Errors
    /// The undecoded delivery, if another version has written the payload.
    pub(crate) fn decode(self) -> Result<DelayDelivery, Box<Self>> {
        match split_stored(&self.value).and_then(|(_, payload)| StoredPayload::decode(payload)) {
            Some(payload) => Ok(self.with(payload)),
            None => Err(Box::new(self)),
        }
    }

    /// Returns the delivery with the undecoded payload as its body.
    pub(crate) fn undecoded(mut self) -> DelayDelivery {
        let body = std::mem::take(&mut self.value);
        self.with(StoredPayload { body, ..StoredPayload::default() })
    }

    fn with(self, StoredPayload { business_key, headers, body }: StoredPayload) -> DelayDelivery {
        DelayDelivery {
            id: id_of(&self.receipt.name, self.slot, &self.receipt.member),
            business_key,
            headers,
            body,
            attempt: self.used.saturating_add(1),
            delivered: self.receipt.number,
            deaths: self.deaths,
            first_at: self.first_at,
            last_error: Some(self.why).filter(|why| !why.is_empty()),
            slot: self.slot,
            receipt: self.receipt,
        }
    }
}

/// Returns the id that the producer has set, or the position of the message.
pub(crate) fn id_of(name: &str, slot: u16, member: &str) -> String {
    name.strip_prefix('k').map_or_else(|| format!("{slot}-{member}"), str::to_owned)
}

/// Parses the slot and member of an id that the server has assigned.
pub(crate) fn parse_server_id(id: &str) -> Option<(u16, &str)> {
    let (slot, member) = id.split_once('-')?;
    let made = member.len() == 14 && member.is_ascii();
    Some((slot.parse().ok()?, member)).filter(|_| made)
}

/// Shows only sizes and positions, because bodies, ids and headers may be sensitive.
impl fmt::Debug for DelayDelivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DelayDelivery")
            .field("slot", &self.slot)
            .field("bytes", &self.body.len())
            .field("attempt", &self.attempt)
            .field("delivered", &self.delivered)
            .finish_non_exhaustive()
    }
}
