//! What we leave on a message, beside what is its own: properties that begin with `x-idempotent-`.
use idempotent_core::Timestamp;
use idempotent_mq::{DeadLetter, Headers, Retry};

use crate::headers::{Properties, SEPARATORS, unpack};
use crate::queues::Place;
use crate::settings::Settings;

/// A message as its producer made it, and what was left on it since.
#[derive(Clone, Debug, Default)]
pub(crate) struct Marked {
    /// Without marks of ours, and without what the broker adds on each trip.
    properties: Properties,
    pub(crate) flag: i32,
    pub(crate) attempt: Option<u32>,
    pub(crate) first_at: Option<Timestamp>,
    pub(crate) deaths: u32,
    /// Where the message itself lies, of which this may be a copy.
    pub(crate) place: Option<Place>,
}

const PREFIX: &str = "x-idempotent-";
const ATTEMPT: &str = "x-idempotent-attempt";
const FIRST_AT: &str = "x-idempotent-first-at";
const LAST_AT: &str = "x-idempotent-last-at";
const ATTEMPTS: &str = "x-idempotent-attempts";
const DEATHS: &str = "x-idempotent-deaths";
const REASON: &str = "x-idempotent-reason";
const ID: &str = "x-idempotent-id";
const TOPIC: &str = "x-idempotent-topic";
const GROUP: &str = "x-idempotent-group";
/// Where in its topic the message lies that this is a copy of.
const PLACE: &str = "x-idempotent-place";
/// Headers that are no properties. As the next one, from the publisher: it stays on the message.
pub(crate) const HEADERS: &str = "x-idempotent-headers";
/// The body is empty, which RocketMQ does not send.
pub(crate) const EMPTY: &str = "x-idempotent-empty";
const LONGEST_REASON: usize = 1024;

/// The message's own id, the same on each trip; and what its producer says it is about.
pub(crate) const UNIQ_KEY: &str = "UNIQ_KEY";
pub(crate) const KEYS: &str = "KEYS";
pub(crate) const TAGS: &str = "TAGS";

/// What broker and client leave on a message for one trip. On a copy it would be wrong, or do something: a copy with
/// `TRAN_MSG` waits for a commit that never comes.
const OF_A_TRIP: [&str; 34] = [
    "1ST_POP_TIME",
    "BORN_TIMESTAMP",
    "CHECK_IMMUNITY_TIME_IN_SECONDS",
    "CLUSTER",
    "CONSUME_START_TIME",
    "DELAY",
    "DLQ_ORIGIN_MESSAGE_ID",
    "DLQ_ORIGIN_TOPIC",
    "EXTEND_UNIQ_INFO",
    "MAX_OFFSET",
    "MAX_RECONSUME_TIMES",
    "MIN_OFFSET",
    "MQ2_FLAG",
    "MSG_REGION",
    "ORIGIN_GROUP",
    "ORIGIN_MESSAGE_ID",
    "PGROUP",
    "POP_CK",
    "POP_CK_OFFSET",
    "PROPERTY_FORWARD_QUEUE_ID",
    "REAL_QID",
    "REAL_TOPIC",
    "RECONSUME_TIME",
    "REDIRECT",
    "RETRY_TOPIC",
    "TRACE_ON",
    "TRANSACTION_CHECK_TIMES",
    "TRANSFER_FLAG",
    "TRANS_OFFSET",
    "WAIT",
    "__BORNHOST",
    "__CRC32#",
    "__STARTDELIVERTIME",
    "__transactionId__",
];
const FAMILIES_OF_A_TRIP: [&str; 4] = ["INNER_", "TIMER_", "TRAN_", "__RMQ.TRANSIENT."];

fn is_of_a_trip(name: &str) -> bool {
    OF_A_TRIP.contains(&name) || FAMILIES_OF_A_TRIP.iter().any(|family| name.starts_with(family))
}

/// Whether the broker or its clients have a use for the name.
pub(crate) fn is_of_the_broker(name: &str) -> bool {
    is_of_a_trip(name) || [UNIQ_KEY, KEYS, TAGS].contains(&name)
}

pub(crate) fn is_mark(name: &str) -> bool {
    name.starts_with(PREFIX)
}

impl Marked {
    pub(crate) fn read<'a>(all: impl IntoIterator<Item = (&'a str, &'a str)>, flag: i32) -> Self {
        let mut marked = Self { flag, ..Self::default() };
        for (name, value) in all {
            match name {
                ATTEMPT => marked.attempt = value.parse().ok(),
                FIRST_AT => marked.first_at = value.parse().ok().map(Timestamp),
                DEATHS => marked.deaths = value.parse().unwrap_or_default(),
                PLACE => marked.place = Place::read(value),
                HEADERS | EMPTY => marked.keep(name, value),
                _ if is_mark(name) || is_of_a_trip(name) => {}
                _ => marked.keep(name, value),
            }
        }
        marked
    }

    fn keep(&mut self, name: &str, value: &str) {
        self.properties.insert(name.to_owned(), value.to_owned());
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.properties.get(name).map(String::as_str)
    }

    pub(crate) fn id(&self) -> Option<&str> {
        self.get(UNIQ_KEY)
    }

    pub(crate) fn business_key(&self) -> Option<&str> {
        self.get(KEYS)
    }

    /// Whether there is a body at all: RocketMQ has none that are empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.properties.contains_key(EMPTY)
    }

    /// For a handler: by name, then what its producer packed, in its order.
    pub(crate) fn headers(&self) -> Headers {
        let own = |name: &str| !is_mark(name) && name != UNIQ_KEY && name != KEYS;
        let plain = self.properties.iter().filter(|(name, _)| own(name));
        let mut headers: Headers = plain.map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let packed = self.get(HEADERS).map(unpack).unwrap_or_default();
        packed.iter().for_each(|(name, value)| headers.push(name, value));
        headers
    }

    /// By a header with a number of ms since 1970.
    pub(crate) fn expires_at(&self, header: Option<&str>) -> Option<Timestamp> {
        let ms: u64 = self.get(header?)?.trim().parse().ok()?;
        Some(Timestamp(ms.saturating_mul(1_000)))
    }

    /// The properties of a copy that comes again.
    pub(crate) fn for_retry(&self, retry: &Retry) -> Properties {
        let mut marks = self.properties.clone();
        set(&mut marks, ATTEMPT, retry.attempt);
        set(&mut marks, FIRST_AT, retry.first_at.0);
        set_text(&mut marks, REASON, &retry.reason);
        self.set_rest(&mut marks);
        marks
    }

    /// The properties of a copy that comes again as it was: a delivery given back, or dropped.
    pub(crate) fn as_it_was(&self) -> Properties {
        let mut marks = self.properties.clone();
        if let Some(attempt) = self.attempt {
            set(&mut marks, ATTEMPT, attempt);
        }
        if let Some(first_at) = self.first_at {
            set(&mut marks, FIRST_AT, first_at.0);
        }
        self.set_rest(&mut marks);
        marks
    }

    /// The properties of a dead letter: without an attempt or a place, so that it begins anew when it is sent again.
    pub(crate) fn for_dead_letter(&self, letter: &DeadLetter, settings: &Settings) -> Properties {
        let mut marks = self.properties.clone();
        set_text(&mut marks, REASON, &letter.reason);
        set_text(&mut marks, TOPIC, &settings.topic);
        set_text(&mut marks, GROUP, &settings.group);
        set(&mut marks, ATTEMPTS, letter.attempts);
        set(&mut marks, FIRST_AT, letter.first_at.0);
        set(&mut marks, LAST_AT, letter.last_at.0);
        set(&mut marks, DEATHS, letter.deaths);
        if let Some(id) = &letter.id {
            set_text(&mut marks, ID, id);
        }
        marks
    }

    /// What each copy has that comes again.
    fn set_rest(&self, marks: &mut Properties) {
        if self.deaths > 0 {
            set(marks, DEATHS, self.deaths);
        }
        if let Some(place) = &self.place {
            set_text(marks, PLACE, &place.to_mark());
        }
    }
}

fn set(marks: &mut Properties, name: &str, value: impl Into<u64>) {
    marks.insert(name.to_owned(), value.into().to_string());
}

fn set_text(marks: &mut Properties, name: &str, value: &str) {
    let end = value.floor_char_boundary(LONGEST_REASON);
    // An empty value would be read as none.
    if end > 0 {
        marks.insert(name.to_owned(), value[..end].replace(SEPARATORS, " "));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(crate) mod tests;
