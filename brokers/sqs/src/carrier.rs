//! Mapping between the attributes of a message and the headers of a delivery.
//!
//! Each header is an attribute. The attribute `idempotent` contains the adapter's own data as JSON.
use std::borrow::Cow;
use std::collections::HashMap;

use aws_sdk_sqs::primitives::Blob;
use aws_sdk_sqs::types::MessageAttributeValue;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use idempotent_mq::{Datum, Envelope, Field, Headers, MessagePlace, OutboundMessage};
use serde_json::{Map, Value, json};

use crate::body::{is_character, is_text};

/// The attributes of a message by their names.
pub(crate) type Attributes = HashMap<String, MessageAttributeValue>;

/// The attribute with the adapter's own data.
const OWN: &str = "idempotent";
/// The member of the own data with the mark of the body.
const BODY: &str = "body";
/// The maximum number of attributes of a message.
const MOST: usize = 10;

/// The queue of a dead letter, and the message group that the message had there.
const QUEUE: Field = Field::Origin("queue");
const GROUP: Field = Field::Origin("group");

/// The attributes of a received message.
#[derive(Clone, Debug)]
pub(crate) struct StoredAttributes {
    /// The attributes of the producer.
    native: Attributes,
    own: Map<String, Value>,
    place: MessagePlace,
}

impl StoredAttributes {
    /// Parses the attributes of a message in this place. Own data that cannot be read is left out.
    pub(crate) fn parse(attributes: Option<Attributes>, place: MessagePlace) -> Self {
        let mut native = attributes.unwrap_or_default();
        let own = native.remove(OWN).and_then(|value| serde_json::from_str(value.string_value()?).ok());
        Self { native, own: own.unwrap_or_default(), place }
    }

    /// Returns the headers, sorted by name. The values of one name keep their order.
    pub(crate) fn headers(&self) -> Headers {
        let native = self.native.iter().map(|(name, value)| (name.clone(), bytes(value)));
        let encoded = self.own.get("headers").and_then(Value::as_array).into_iter().flatten();
        let mut all: Vec<_> = native.chain(encoded.filter_map(decoded)).collect();
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        all.into_iter().collect()
    }

    /// Returns the envelope of the message.
    pub(crate) fn envelope(&self) -> Envelope {
        Envelope::read(self.place, |field| field.of_json(&self.own))
    }

    /// Returns the mark of the body.
    pub(crate) fn body_mark(&self) -> Option<&str> {
        self.own.get(BODY)?.as_str()
    }

    /// Returns the queue of a dead letter, and the message group that the message had there.
    pub(crate) fn origin(&self) -> (Option<Cow<'_, str>>, Option<Cow<'_, str>>) {
        let text = |field: Field| self.place.believes(field).then(|| field.of_json(&self.own)).flatten();
        (text(QUEUE), text(GROUP))
    }

    /// Returns the attributes of the dead letter of this message, which has this group in its queue, and whose body has this mark.
    pub(crate) fn dead(&self, queue: &str, group: Option<&str>, envelope: &Envelope, mark: Option<&str>) -> Attributes {
        let mut own = self.fresh();
        envelope.write(|field, value| field.put_json(&mut own, value));
        QUEUE.put_json(&mut own, Datum::Text(queue));
        group.into_iter().for_each(|group| GROUP.put_json(&mut own, Datum::Text(group)));
        assemble(self.native.clone(), marked(own, mark))
    }

    /// Returns the attributes as they were received, without the data of a letter, for a body with this mark.
    pub(crate) fn bare(&self, mark: Option<&str>) -> Attributes {
        assemble(self.native.clone(), marked(self.fresh(), mark))
    }

    /// Returns the attributes of the message that is put back for this dead letter, with this id and this mark of its body.
    pub(crate) fn revived(&self, id: &str, mark: Option<&str>) -> Attributes {
        let mut own = self.fresh();
        Field::Id.put_json(&mut own, Datum::Text(id));
        assemble(self.native.clone(), marked(own, mark))
    }

    /// Returns the own data without that of a letter.
    fn fresh(&self) -> Map<String, Value> {
        let mut own = self.own.clone();
        own.remove("letter");
        own
    }
}

/// Returns the attributes of a message that is published, whose body has this mark.
pub(crate) fn sent(message: &OutboundMessage, mark: Option<&str>) -> Attributes {
    let (mut native, mut encoded) = (Attributes::new(), Vec::new());
    for (name, value) in message.headers.iter() {
        let is_single = message.headers.all(name).count() == 1;
        match attribute(name, value).filter(|_| is_single) {
            Some(attribute) => drop(native.insert(name.to_owned(), attribute)),
            None => encoded.push(json!([BASE64.encode(name), BASE64.encode(value)])),
        }
    }
    let mut own = Map::new();
    Envelope::sent(message).write(|field, value| field.put_json(&mut own, value));
    if !encoded.is_empty() {
        own.insert("headers".to_owned(), encoded.into());
    }
    assemble(native, marked(own, mark))
}

/// Returns the size of a message as SQS counts it.
pub(crate) fn size(body: &str, attributes: &Attributes) -> usize {
    let of =
        |(name, value): (&String, &MessageAttributeValue)| name.len() + value.data_type().len() + bytes(value).len();
    body.len() + attributes.iter().map(of).sum::<usize>()
}

fn marked(mut own: Map<String, Value>, mark: Option<&str>) -> Map<String, Value> {
    match mark {
        Some(mark) => drop(own.insert(BODY.to_owned(), mark.into())),
        None => drop(own.remove(BODY)),
    }
    own
}

/// Adds the own data to the attributes. An attribute that has no room moves into the own data, with its type.
fn assemble(mut native: Attributes, mut own: Map<String, Value>) -> Attributes {
    if own.is_empty() {
        return native;
    }
    while native.len() >= MOST {
        let Some(name) = native.keys().max().cloned() else { break };
        let Some(value) = native.remove(&name) else { break };
        let moved = json!([BASE64.encode(&name), BASE64.encode(bytes(&value)), value.data_type()]);
        match own.get_mut("headers").and_then(Value::as_array_mut) {
            Some(encoded) => encoded.push(moved),
            None => drop(own.insert("headers".to_owned(), vec![moved].into())),
        }
    }
    if let Some(value) = text_value(json_text(own)) {
        native.insert(OWN.to_owned(), value);
    }
    native
}

/// Returns JSON whose characters SQS accepts. JSON has escapes for the others.
fn json_text(own: Map<String, Value>) -> String {
    let mut text = String::new();
    for character in Value::Object(own).to_string().chars() {
        match is_character(character) {
            true => text.push(character),
            false => text.push_str(&format!("\\u{:04x}", u32::from(character))),
        }
    }
    text
}

/// Returns the attribute for a header, or `None` if SQS does not accept it.
fn attribute(name: &str, value: &[u8]) -> Option<MessageAttributeValue> {
    if !is_name(name) || value.is_empty() {
        return None;
    }
    match std::str::from_utf8(value) {
        Ok(text) if is_text(text) => text_value(text.to_owned()),
        _ => MessageAttributeValue::builder().data_type("Binary").binary_value(Blob::new(value)).build().ok(),
    }
}

/// Returns an attribute with a text. Building fails only without a type.
fn text_value(text: String) -> Option<MessageAttributeValue> {
    MessageAttributeValue::builder().data_type("String").string_value(text).build().ok()
}

/// Returns true for a name that SQS accepts, except the name of the adapter's own data.
fn is_name(name: &str) -> bool {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    let lower = name.to_ascii_lowercase();
    let is_reserved = ["aws.", "amazon."].iter().any(|prefix| lower.starts_with(prefix));
    let has_lone_dot = name.starts_with('.') || name.ends_with('.') || name.contains("..");
    (1..=256).contains(&name.len()) && name.bytes().all(is_valid) && !is_reserved && !has_lone_dot && name != OWN
}

fn bytes(value: &MessageAttributeValue) -> Vec<u8> {
    match (value.string_value(), value.binary_value()) {
        (Some(text), _) => text.as_bytes().to_vec(),
        (None, Some(blob)) => blob.as_ref().to_vec(),
        (None, None) => Vec::new(),
    }
}

fn decoded(encoded: &Value) -> Option<(String, Vec<u8>)> {
    let part = |at: usize| BASE64.decode(encoded.get(at)?.as_str()?).ok();
    Some((String::from_utf8(part(0)?).ok()?, part(1)?))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use MessagePlace::{DeadLetters, Queue};
    use idempotent_core::Timestamp;
    use idempotent_mq::{DeadLetter, Delivery, Position};

    use super::*;

    fn by_name(headers: &Headers) -> Vec<(&str, &[u8])> {
        let mut all: Vec<_> = headers.iter().collect();
        all.sort_by_key(|(name, _)| *name);
        all
    }

    fn is_accepted(attributes: &Attributes) -> bool {
        let names = attributes.keys().filter(|name| *name != OWN);
        let texts = attributes.values().filter_map(|value| value.string_value());
        attributes.len() <= MOST && names.into_iter().all(|name| is_name(name)) && texts.into_iter().all(is_text)
    }

    #[test]
    fn headers_arrive_as_they_were_sent_and_none_is_taken_for_the_adapters_own() {
        let mut message = OutboundMessage::new("orders", "m\u{ffff}\0", "")
            .business_key("order-17")
            .header("via", "second")
            .header("trace", "00-abc")
            .header("via", "first")
            .header("raw", [0, 255])
            .header("control", "\x1b")
            .header("nothing", "")
            .header("gr\u{f6}\u{df}e", "x")
            .header("AWS.trace", "x")
            .header(".a", "x")
            .header("a..b", "x")
            .header(OWN, "{\"deaths\": 9}");
        for number in 0..20 {
            message = message.header(format!("more-{number}"), "x");
        }
        let attributes = sent(&message, Some("base64"));
        assert!(is_accepted(&attributes), "{attributes:?}");
        let stored = StoredAttributes::parse(Some(attributes), Queue);
        assert_eq!(by_name(&stored.headers()), by_name(&message.headers));
        assert_eq!((stored.envelope(), stored.body_mark()), (Envelope::sent(&message), Some("base64")));
    }

    #[test]
    fn a_name_keeps_the_rules_of_sqs_and_is_not_our_own() {
        let longest = "n".repeat(256);
        for name in ["trace", "a-b_c.D9", "awsome", "amazonas", &longest] {
            assert!(is_name(name), "{name}");
        }
        let too_long = "n".repeat(257);
        for name in ["", "a b", "gr\u{f6}\u{df}e", "AWS.trace", "Amazon.x", ".a", "a.", "a..b", OWN, &too_long] {
            assert!(!is_name(name), "{name}");
        }
    }

    #[test]
    fn a_dead_letter_keeps_the_types_of_foreign_attributes_and_loses_none() {
        let typed =
            |data_type: &str| MessageAttributeValue::builder().data_type(data_type).string_value("7").build().unwrap();
        let foreign: Attributes = (0..MOST).map(|number| (format!("n{number}"), typed("Number.int"))).collect();
        let stored = StoredAttributes::parse(Some(foreign), Queue);
        let mut letter = DeadLetter::because("two\r\n\u{fffe}lines", Timestamp(9));
        (letter.attempts, letter.first_at, letter.deaths, letter.id) = (3, Timestamp(4), 2, Some("k:1".into()));
        let delivery = Delivery::new(Position::of("orders.fifo"), Vec::new()).id("m-1");
        let envelope = Envelope::of(&delivery).dead(&letter);
        let dead = stored.dead("orders.fifo", Some("g"), &envelope, Some("empty"));
        assert!(is_accepted(&dead), "{dead:?}");
        assert_eq!((dead.len(), dead["n0"].data_type()), (MOST, "Number.int"));
        let in_queue = StoredAttributes::parse(Some(dead.clone()), Queue);
        assert_eq!((in_queue.envelope().letter, in_queue.origin()), (None, (None, None)));
        let dead = StoredAttributes::parse(Some(dead), DeadLetters);
        let (queue, group) = dead.origin();
        assert_eq!((dead.envelope(), queue.as_deref(), group.as_deref()), (envelope, Some("orders.fifo"), Some("g")));
        assert_eq!(dead.body_mark(), Some("empty"));
        let back = StoredAttributes::parse(Some(dead.revived("m-1", None)), DeadLetters);
        assert!(back.headers() == stored.headers());
        let (revived, mark) = (back.envelope(), back.body_mark());
        assert_eq!((revived.letter, mark, revived.id.as_deref()), (None, None, Some("m-1")));
        assert_eq!((revived.deaths, revived.first_at), (2, Some(Timestamp(4))));
    }

    #[test]
    fn damaged_own_data_is_like_missing_data() {
        let damaged = r#"{"headers": ["%", ["AA"], [1, 2]], "id": 5, "deaths": -1, "letter": {"queue": 1}}"#;
        for own in [damaged, "{", "[1]", "null"] {
            let attributes = Attributes::from([(OWN.to_owned(), text_value(own.to_owned()).unwrap())]);
            let stored = StoredAttributes::parse(Some(attributes), DeadLetters);
            assert_eq!((stored.headers().len(), stored.envelope()), (0, Envelope::default()), "{own}");
            assert_eq!(stored.origin(), (None, None), "{own}");
        }
        let binary = MessageAttributeValue::builder().data_type("Binary").binary_value(Blob::new([1])).build().unwrap();
        let stored = StoredAttributes::parse(Some([(OWN.to_owned(), binary)].into()), DeadLetters);
        assert!(stored.headers().is_empty());
    }

    #[test]
    fn own_data_of_earlier_versions_is_read_and_written_again() {
        let own = r#"{"deaths":2,"first_at":4,"id":"m-1","key":"order-17","letter":{"attempts":5,"group":"g","id":"k:1",
            "last_at":9,"queue":"orders.fifo","reason":"no stock"}}"#;
        let attributes = Attributes::from([(OWN.to_owned(), text_value(own.to_owned()).unwrap())]);
        let stored = StoredAttributes::parse(Some(attributes), DeadLetters);
        let envelope = stored.envelope();
        let letter = envelope.letter.as_ref().unwrap();
        assert_eq!((envelope.id.as_deref(), envelope.business_key.as_deref()), (Some("m-1"), Some("order-17")));
        assert_eq!((&*letter.reason, letter.id.as_deref(), letter.attempts), ("no stock", Some("k:1"), 5));
        let again = stored.dead("orders.fifo", Some("g"), &envelope, None);
        let json = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        assert_eq!(json(again[OWN].string_value().unwrap()), json(own));
    }
}
