//! The envelope of a message: the data that an adapter adds to a message, and the places in which it believes this data.
use std::borrow::Cow;
use std::fmt;

use idempotent_core::Timestamp;
use serde_json::{Map, Value};

use crate::{DeadLetter, Delivery, OutboundMessage, Retry};

/// The place in which an adapter found a message.
///
/// A producer can write the headers, attributes and columns of an adapter, too. An adapter therefore believes its data only where
/// the adapter itself wrote it:
///
/// | field | queue | retries | dead letters |
/// |---|---|---|---|
/// | `Id`, `BusinessKey` | yes, the producer sets them | yes | yes |
/// | `FirstAt`, `Deaths` | yes, for operators only | yes | yes |
/// | `Attempt`, `Due` | no | yes | no, a letter begins again |
/// | `Origin` | no | yes | yes |
/// | `Reason`, `LetterId`, `Attempts`, `LastAt` | no | no | yes |
///
/// The history of a message in its queue comes from a redrive or from its producer. It decides neither whether a handler runs nor to
/// which queue a message goes.
///
/// Even among dead letters, a letter returns only to the queue of the operator's handle: other programs write there, too.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum MessagePlace {
    /// The queue, topic or stream to which producers send.
    Queue,
    /// A place to which only the adapter sends, with a retry: a retry topic, a delay queue, or a queue whose messages carry the
    /// broker's own mark that they come from there.
    Retry,
    /// The dead letters.
    DeadLetters,
}

/// A field of an [`Envelope`].
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Field {
    /// The message id.
    Id,
    /// The business key.
    BusinessKey,
    /// The time of the first delivery.
    FirstAt,
    /// The number of deaths.
    Deaths,
    /// The number of the attempt.
    Attempt,
    /// The time before which a message that is retried must not be delivered.
    Due,
    /// A field of one broker about the original message, such as its topic or its partition.
    Origin(&'static str),
    /// The reason of a dead letter.
    Reason,
    /// The id of a dead letter.
    LetterId,
    /// The number of the last attempt before a death.
    Attempts,
    /// The time of a death.
    LastAt,
}

impl MessagePlace {
    /// Returns true if an adapter believes this field of a message from this place.
    #[must_use]
    pub const fn believes(self, field: Field) -> bool {
        match field {
            Field::Id | Field::BusinessKey | Field::FirstAt | Field::Deaths => true,
            Field::Attempt | Field::Due => matches!(self, Self::Retry),
            Field::Origin(_) => matches!(self, Self::Retry | Self::DeadLetters),
            Field::Reason | Field::LetterId | Field::Attempts | Field::LastAt => matches!(self, Self::DeadLetters),
        }
    }
}

impl Field {
    /// The fields of every adapter.
    const COMMON: [Self; 10] = [
        Self::Id,
        Self::BusinessKey,
        Self::FirstAt,
        Self::Deaths,
        Self::Attempt,
        Self::Due,
        Self::Reason,
        Self::LetterId,
        Self::Attempts,
        Self::LastAt,
    ];

    /// Returns the name, in lower case with hyphens.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Id => "id",
            Self::BusinessKey => "key",
            Self::FirstAt => "first-at",
            Self::Deaths => "deaths",
            Self::Attempt => "attempt",
            Self::Due => "due",
            Self::Origin(name) => name,
            Self::Reason => "reason",
            Self::LetterId => "letter",
            Self::Attempts => "attempts",
            Self::LastAt => "last-at",
        }
    }

    /// Returns the field with this name, except one of `Origin`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::COMMON.into_iter().find(|field| field.name() == name)
    }

    /// Returns true if the value is a number.
    const fn is_number(self) -> bool {
        matches!(self, Self::FirstAt | Self::Deaths | Self::Attempt | Self::Due | Self::Attempts | Self::LastAt)
    }
}

/// The value of a [`Field`]. Its `Display` form is the text for a broker without numbers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Datum<'a> {
    /// A text, with any characters.
    Text(&'a str),
    /// A number, or a time in microseconds since 1970.
    Number(u64),
}

impl fmt::Display for Datum<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Number(number) => number.fmt(f),
        }
    }
}

/// The data that an adapter adds to a message.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Envelope {
    /// The message id.
    pub id: Option<String>,
    /// The business key.
    pub business_key: Option<String>,
    /// The time of the first delivery.
    pub first_at: Option<Timestamp>,
    /// The number of deaths.
    pub deaths: u32,
    /// The number of the attempt.
    pub attempt: Option<u32>,
    /// The time before which a message that is retried must not be delivered.
    pub due: Option<Timestamp>,
    /// The data of a dead letter. `None` if a part is missing or another program wrote the message.
    pub letter: Option<DeadLetter>,
}

impl Envelope {
    /// Reads the envelope of a message from this place. `stored` returns the text of a field. A value that the place does not believe,
    /// or that is malformed, counts as missing.
    pub fn read<'a>(place: MessagePlace, stored: impl Fn(Field) -> Option<Cow<'a, str>>) -> Self {
        let get = |field| place.believes(field).then(|| stored(field)).flatten();
        let text = |field| get(field).filter(|text| !text.is_empty()).map(Cow::into_owned);
        let number = |field| get(field)?.parse::<u64>().ok();
        let small = |field| number(field)?.try_into().ok();
        let (first_at, deaths) = (number(Field::FirstAt).map(Timestamp), small(Field::Deaths));
        let letter = || {
            let mut letter = DeadLetter::because(get(Field::Reason)?.into_owned(), Timestamp(number(Field::LastAt)?));
            (letter.id, letter.attempts) = (text(Field::LetterId), small(Field::Attempts)?);
            (letter.first_at, letter.deaths) = (first_at?, deaths?);
            Some(letter)
        };
        Self {
            id: text(Field::Id),
            business_key: text(Field::BusinessKey),
            attempt: small(Field::Attempt),
            due: number(Field::Due).map(Timestamp),
            letter: letter(),
            deaths: deaths.unwrap_or_default(),
            first_at,
        }
    }

    /// Returns the envelope of a message that is published.
    #[must_use]
    pub fn sent(message: &OutboundMessage) -> Self {
        Self { id: Some(message.id.clone()), business_key: message.business_key.clone(), ..Self::default() }
    }

    /// Returns the envelope of the message of a delivery, before its first attempt. A dead letter that is put back has this envelope.
    #[must_use]
    pub fn of(delivery: &Delivery) -> Self {
        Self {
            id: delivery.id.clone(),
            business_key: delivery.business_key.clone(),
            first_at: delivery.first_at,
            deaths: delivery.deaths,
            ..Self::default()
        }
    }

    /// Returns the envelope for a retry.
    #[must_use]
    pub fn retried(self, retry: &Retry) -> Self {
        Self { attempt: Some(retry.attempt), first_at: Some(retry.first_at), ..self }
    }

    /// Returns the envelope for a dead letter.
    #[must_use]
    pub fn dead(self, letter: &DeadLetter) -> Self {
        let (first_at, deaths, letter) = (Some(letter.first_at), letter.deaths, Some(letter.clone()));
        Self { first_at, deaths, letter, attempt: None, due: None, ..self }
    }

    /// Writes the envelope: calls `store` for each value. `store` encodes what its broker cannot transmit.
    pub fn write(&self, mut store: impl FnMut(Field, Datum<'_>)) {
        let letter = self.letter.as_ref();
        let (text, number) = (Datum::Text, Datum::Number);
        let fields = [
            (Field::Id, self.id.as_deref().map(text)),
            (Field::BusinessKey, self.business_key.as_deref().map(text)),
            (Field::Attempt, self.attempt.map(|attempt| number(attempt.into()))),
            (Field::FirstAt, self.first_at.map(|at| number(at.0))),
            (Field::Deaths, (self.deaths > 0).then(|| number(self.deaths.into()))),
            (Field::Due, self.due.map(|at| number(at.0))),
            (Field::Reason, letter.map(|letter| text(&letter.reason))),
            (Field::LetterId, letter.and_then(|letter| letter.id.as_deref()).map(text)),
            (Field::Attempts, letter.map(|letter| number(letter.attempts.into()))),
            (Field::LastAt, letter.map(|letter| number(letter.last_at.0))),
        ];
        for (field, value) in fields {
            if let Some(value) = value {
                store(field, value);
            }
        }
    }

    /// Sets the fields of a delivery. The delivery keeps its id and its business key if the envelope has none.
    pub fn open(self, delivery: &mut Delivery) {
        delivery.id = self.id.or(delivery.id.take());
        delivery.business_key = self.business_key.or(delivery.business_key.take());
        delivery.attempt = Some(self.attempt.unwrap_or(1));
        (delivery.first_at, delivery.deaths) = (self.first_at, self.deaths);
    }
}

/// The fields of an adapter in a JSON object. Its member `letter` is an object with the fields of a dead letter.
impl Field {
    /// Returns the text of this field in an object.
    #[must_use]
    pub fn of_json(self, object: &Map<String, Value>) -> Option<Cow<'_, str>> {
        let (is_outer, name) = self.json_name();
        let object = if is_outer { object } else { object.get(LETTER)?.as_object()? };
        match object.get(&*name)? {
            Value::String(text) if !self.is_number() => Some(Cow::Borrowed(text)),
            Value::Number(number) if self.is_number() => Some(Cow::Owned(number.as_u64()?.to_string())),
            _ => None,
        }
    }

    /// Sets this field of an object.
    pub fn put_json(self, object: &mut Map<String, Value>, value: Datum<'_>) {
        let (is_outer, name) = self.json_name();
        let value = match value {
            Datum::Text(text) => text.into(),
            Datum::Number(number) => number.into(),
        };
        if is_outer {
            object.insert(name, value);
        } else if let Some(letter) = object.entry(LETTER).or_insert_with(|| Map::new().into()).as_object_mut() {
            letter.insert(name, value);
        }
    }

    /// Returns whether this is a field of the outer object, and its name there.
    fn json_name(self) -> (bool, String) {
        let is_outer = match self {
            Self::Id | Self::BusinessKey | Self::FirstAt | Self::Deaths | Self::Attempt | Self::Due => true,
            Self::Origin(_) | Self::Reason | Self::LetterId | Self::Attempts | Self::LastAt => false,
        };
        let name = if self == Self::LetterId { Self::Id.name() } else { self.name() };
        (is_outer, name.replace('-', "_"))
    }
}

/// The member with the fields of a dead letter.
const LETTER: &str = "letter";

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::Position;

    const PLACES: [MessagePlace; 3] = [MessagePlace::Queue, MessagePlace::Retry, MessagePlace::DeadLetters];

    #[test]
    fn a_place_believes_what_the_table_lists() {
        let source = include_str!("envelope.rs");
        let rows = source.lines().filter(|line| line.starts_with("/// | `"));
        let mut listed = 0;
        for row in rows {
            let cells: Vec<_> = row.split('|').map(str::trim).collect();
            let all = Field::COMMON.into_iter().chain([Field::Origin("topic")]);
            let fields = all.filter(|field| cells[1].split(", ").any(|name| name == format!("`{}`", variant(*field))));
            for field in fields {
                listed += 1;
                let yes: Vec<_> = cells[2..5].iter().map(|cell| cell.starts_with("yes")).collect();
                assert_eq!(yes, PLACES.map(|place| place.believes(field)), "{field:?}");
            }
        }
        assert_eq!(listed, Field::COMMON.len() + 1);
    }

    fn variant(field: Field) -> String {
        format!("{field:?}").split('(').next().unwrap().to_owned()
    }

    /// Returns an envelope with all fields, and its delivery.
    fn whole() -> (Envelope, Delivery) {
        let mut delivery = Delivery::new(Position::of("orders"), Vec::new()).id("m-1").business_key("order-17");
        (delivery.first_at, delivery.deaths) = (Some(Timestamp(4)), 1);
        let mut letter = DeadLetter::because("two\r\nlines", Timestamp(9));
        (letter.attempts, letter.first_at, letter.deaths, letter.id) = (3, Timestamp(4), 2, Some("k:1".into()));
        let envelope = Envelope { attempt: Some(7), due: Some(Timestamp(8)), ..Envelope::of(&delivery).dead(&letter) };
        (envelope, delivery)
    }

    #[test]
    fn each_field_is_read_as_it_was_written_where_it_is_believed() {
        let (written, delivery) = whole();
        let mut object = Map::new();
        written.write(|field, value| field.put_json(&mut object, value));
        let read = |place| Envelope::read(place, |field| field.of_json(&object));
        let (queue, retry, dead) = (read(PLACES[0]), read(PLACES[1]), read(PLACES[2]));
        assert_eq!(retry, Envelope { letter: None, ..written.clone() });
        assert_eq!(dead, Envelope { attempt: None, due: None, ..written.clone() });
        assert_eq!(queue, Envelope { attempt: None, due: None, letter: None, ..written.clone() });
        let mut opened = Delivery::new(Position::of("orders"), Vec::new());
        retry.open(&mut opened);
        assert_eq!((opened.id, opened.business_key), (delivery.id.clone(), delivery.business_key.clone()));
        assert_eq!((opened.attempt, opened.first_at, opened.deaths), (Some(7), Some(Timestamp(4)), 2));
        let mut retry = Retry::after(std::time::Duration::ZERO, Timestamp(5));
        retry.attempt = 3;
        let retried = Envelope::of(&delivery).retried(&retry);
        assert_eq!((retried.attempt, retried.first_at, retried.deaths), (Some(3), Some(Timestamp(5)), 1));
        assert_eq!(Envelope { deaths: 2, ..Envelope::of(&delivery) }, queue);
    }

    #[test]
    fn a_damaged_value_counts_as_missing_and_a_letter_without_one_is_of_another_program() {
        let read = |text: &str| {
            let object: Map<String, Value> = serde_json::from_str(text).unwrap();
            Envelope::read(MessagePlace::DeadLetters, |field| field.of_json(&object))
        };
        let damaged = r#"{"id": 5, "key": "", "deaths": -1, "first_at": "4", "letter": {"reason": 1}}"#;
        assert_eq!(read(damaged), Envelope::default());
        let whole = r#"{"deaths": 2, "first_at": 4, "letter": {"reason": "", "attempts": 3, "last_at": 9}}"#;
        assert_eq!(read(whole).letter.map(|letter| letter.last_at), Some(Timestamp(9)));
        for name in ["deaths", "first_at", "reason", "attempts", "last_at"] {
            assert_eq!(read(&whole.replace(name, "other")).letter, None, "{name}");
        }
    }

    #[test]
    fn a_field_has_one_name() {
        assert!(Field::COMMON.into_iter().all(|field| Field::named(field.name()) == Some(field)));
        assert_eq!(Field::named("topic"), None);
        assert_eq!(Field::Origin("topic").name(), "topic");
    }
}
