//! A message that somebody has.
use std::fmt;
use std::sync::Arc;

use idempotent_core::Micros;
use idempotent_mq::{DeadLetter, Headers};

use super::layout::SlotKeys;
use super::payload::StoredPayload;
use super::reply_items::split_stored;

/// One delivery of a message. It is this consumer's until its time to be settled is over; then it comes again.
#[derive(Clone)]
#[non_exhaustive]
pub struct Taken {
    /// The same each time this message is delivered.
    pub id: String,
    /// What the producer says it is about.
    pub business_key: Option<String>,
    /// As they were sent.
    pub headers: Headers,
    /// The payload, byte for byte as it was sent.
    pub body: Vec<u8>,
    /// Which attempt this is: one more with each rollback, and with each delivery that nobody settled in time.
    pub attempt: u32,
    /// How often it was delivered, this time included.
    pub delivered: u32,
    /// How often it lay among the dead letters.
    pub deaths: u32,
    /// When it was delivered first.
    pub first_at: Micros,
    /// Why it came back last, as its consumer said.
    pub last_error: Option<String>,
    /// In which slot of its topic it lies.
    pub slot: u16,
    pub(crate) receipt: DeliveryReceipt,
}

/// What settling takes: the message, and which of its deliveries.
#[derive(Clone)]
pub(crate) struct DeliveryReceipt {
    pub(crate) keys: Arc<SlotKeys>,
    pub(crate) member: String,
    pub(crate) name: String,
    pub(crate) number: u32,
    /// Which attempt it is by the marks of a consumer.
    pub(crate) mark: u32,
}

/// A message as the script hands it out, whatever its payload is.
pub(crate) struct RawDelivery {
    pub(crate) receipt: DeliveryReceipt,
    pub(crate) deaths: u32,
    pub(crate) first_at: Micros,
    slot: u16,
    used: u32,
    why: String,
    value: Vec<u8>,
}

impl RawDelivery {
    /// Its first delivery has no state. `now`: when it was handed out.
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
        let (first_at, why) = (Micros(number()?), words.next()?);
        let name = split_stored(&value).map(|(name, _)| name).unwrap_or_default();
        let receipt = DeliveryReceipt { keys: keys.clone(), member: member.to_owned(), name, number: taken, mark };
        let why = String::from_utf8_lossy(why).into_owned();
        Some(Self { receipt, deaths, first_at, slot, used, why, value })
    }

    /// One that lies among the dead letters.
    pub(crate) fn dead(mut receipt: DeliveryReceipt, slot: u16, letter: Option<&DeadLetter>, value: Vec<u8>) -> Self {
        receipt.name = split_stored(&value).map(|(name, _)| name).unwrap_or_default();
        let first_at = letter.map_or(Micros(0), |letter| letter.first_at);
        let deaths = letter.map_or(1, |letter| letter.deaths);
        Self { receipt, deaths, first_at, slot, used: 0, why: String::new(), value }
    }

    /// # Errors
    /// Itself, where what is kept is not written by this version.
    pub(crate) fn decode(self) -> Result<Taken, Box<Self>> {
        let payload = split_stored(&self.value).and_then(|(_, payload)| StoredPayload::decode(payload));
        let Some(StoredPayload { business_key, headers, body }) = payload else { return Err(Box::new(self)) };
        Ok(Taken {
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
        })
    }
}

impl Taken {
    /// With all that is kept for a body, where that cannot be read.
    pub(crate) fn raw(handed: RawDelivery) -> Self {
        Self {
            id: id_of(&handed.receipt.name, handed.slot, &handed.receipt.member),
            business_key: None,
            headers: Headers::default(),
            body: handed.value,
            attempt: 1,
            delivered: handed.receipt.number,
            deaths: handed.deaths,
            first_at: handed.first_at,
            last_error: None,
            slot: handed.slot,
            receipt: handed.receipt,
        }
    }
}

/// What its producer called it, or where it lies.
pub(crate) fn id_of(name: &str, slot: u16, member: &str) -> String {
    name.strip_prefix('k').map_or_else(|| format!("{slot}-{member}"), str::to_owned)
}

/// The slot and the member in an id that was made by the server.
pub(crate) fn parse_server_id(id: &str) -> Option<(u16, &str)> {
    let (slot, member) = id.split_once('-')?;
    let made = member.len() == 14 && member.is_ascii();
    Some((slot.parse().ok()?, member)).filter(|_| made)
}

/// Sizes and places only: bodies, ids and headers may be anything.
impl fmt::Debug for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Taken")
            .field("slot", &self.slot)
            .field("bytes", &self.body.len())
            .field("attempt", &self.attempt)
            .field("delivered", &self.delivered)
            .finish_non_exhaustive()
    }
}
