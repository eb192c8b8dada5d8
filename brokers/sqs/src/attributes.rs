//! Mapping between the attributes of a message and the headers of a delivery.
//!
//! Each header is an attribute. The attribute `idempotent` contains the adapter's own data as JSON.
use std::collections::HashMap;

use aws_sdk_sqs::primitives::Blob;
use aws_sdk_sqs::types::MessageAttributeValue;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use idempotent_core::Timestamp;
use idempotent_mq::{DeadLetter, Headers, MessagePlace, OutboundMessage, OwnData};
use serde_json::{Map, Value, json};

use crate::body::{is_character, is_text};

/// The attributes of a message by their names.
pub(crate) type Attributes = HashMap<String, MessageAttributeValue>;

/// The attribute with the adapter's own data.
const OWN: &str = "idempotent";
/// The maximum number of attributes of a message.
const MOST: usize = 10;

/// The attributes of a received message.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoredAttributes {
    /// The attributes of the producer.
    native: Attributes,
    own: Map<String, Value>,
}

impl StoredAttributes {
    /// Parses the attributes of a message in this place. Own data is left out if it cannot be read, or if the place does not believe it.
    pub(crate) fn parse(attributes: Option<Attributes>, place: MessagePlace) -> Self {
        let mut native = attributes.unwrap_or_default();
        let own = native.remove(OWN).and_then(|value| serde_json::from_str(value.string_value()?).ok());
        let mut own: Map<String, Value> = own.unwrap_or_default();
        if !place.believes(OwnData::Letter) {
            own.remove("letter");
        }
        Self { native, own }
    }

    /// Returns the headers, sorted by name. The values of one name keep their order.
    pub(crate) fn headers(&self) -> Headers {
        let native = self.native.iter().map(|(name, value)| (name.clone(), bytes(value)));
        let encoded = self.own.get("headers").and_then(Value::as_array).into_iter().flatten();
        let mut all: Vec<_> = native.chain(encoded.filter_map(decoded)).collect();
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        all.into_iter().collect()
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.own.get(name)?.as_str().filter(|text| !text.is_empty())
    }

    pub(crate) fn number<N: TryFrom<u64>>(&self, name: &str) -> Option<N> {
        number(&self.own, name)
    }

    pub(crate) fn time(&self, name: &str) -> Option<Timestamp> {
        self.number(name).map(Timestamp)
    }

    /// Returns the data of a dead letter, or `None` if the data is missing or another program wrote the message.
    pub(crate) fn letter(&self) -> Option<DeadLetter> {
        let stored = self.own.get("letter")?.as_object()?;
        let text = |name: &str| stored.get(name).and_then(Value::as_str).map(str::to_owned);
        let mut letter = DeadLetter::because(text("reason")?, Timestamp(number(stored, "last_at")?));
        (letter.id, letter.attempts) = (text("id"), number(stored, "attempts")?);
        (letter.first_at, letter.deaths) = (self.time("first_at")?, self.number("deaths")?);
        Some(letter)
    }

    /// Returns the queue of a dead letter, and the message group that the message had there.
    pub(crate) fn origin(&self) -> (Option<&str>, Option<&str>) {
        let letter = self.own.get("letter");
        let text = |name: &str| letter?.get(name)?.as_str();
        (text("queue"), text("group"))
    }

    /// Returns the attributes of the dead letter of this message, whose body has this mark.
    pub(crate) fn dead(&self, of: &Original<'_>, letter: &DeadLetter, mark: Option<&str>) -> Attributes {
        let mut own = self.own.clone();
        own.insert("id".to_owned(), of.id.into());
        own.insert("first_at".to_owned(), letter.first_at.0.into());
        own.insert("deaths".to_owned(), letter.deaths.into());
        let stored = json!({
            "queue": of.queue,
            "group": of.group,
            "reason": letter.reason,
            "id": letter.id,
            "attempts": letter.attempts,
            "last_at": letter.last_at.0,
        });
        own.insert("letter".to_owned(), stored);
        assemble(self.native.clone(), marked(own, mark))
    }

    /// Returns the attributes as they were received, without the data of a letter, for a body with this mark.
    pub(crate) fn bare(&self, mark: Option<&str>) -> Attributes {
        let mut own = self.own.clone();
        own.remove("letter");
        assemble(self.native.clone(), marked(own, mark))
    }

    /// Returns the attributes of the message that is put back for this dead letter, with this id and this mark of its body.
    pub(crate) fn revived(&self, id: &str, mark: Option<&str>) -> Attributes {
        let mut own = self.own.clone();
        own.remove("letter");
        own.insert("id".to_owned(), id.into());
        assemble(self.native.clone(), marked(own, mark))
    }
}

/// The message of a dead letter.
#[derive(Debug)]
pub(crate) struct Original<'a> {
    pub(crate) id: &'a str,
    pub(crate) queue: &'a str,
    pub(crate) group: Option<&'a str>,
}

/// Returns the attributes of a message that is published, whose body has this mark.
pub(crate) fn sent(message: &OutboundMessage, mark: Option<&str>) -> Attributes {
    let (mut native, mut encoded) = (Attributes::new(), Vec::new());
    for (name, value) in message.headers.iter() {
        let is_single = message.headers.all(name).count() == 1;
        match attribute(name, value).filter(|_| is_single && native.len() < MOST - 1) {
            Some(attribute) => drop(native.insert(name.to_owned(), attribute)),
            None => encoded.push(json!([BASE64.encode(name), BASE64.encode(value)])),
        }
    }
    let mut own = Map::new();
    own.insert("id".to_owned(), message.id.as_str().into());
    if let Some(key) = &message.business_key {
        own.insert("key".to_owned(), key.as_str().into());
    }
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
        Some(mark) => drop(own.insert("body".to_owned(), mark.into())),
        None => drop(own.remove("body")),
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

fn number<N: TryFrom<u64>>(object: &Map<String, Value>, name: &str) -> Option<N> {
    object.get(name)?.as_u64()?.try_into().ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use MessagePlace::{DeadLetters, Queue};

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
        assert_eq!((stored.text("id"), stored.text("key")), (Some("m\u{ffff}\0"), Some("order-17")));
        assert_eq!((stored.text("body"), stored.number::<u32>("deaths")), (Some("base64"), None));
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
        let original = Original { id: "m-1", queue: "orders.fifo", group: Some("g") };
        let dead = stored.dead(&original, &letter, Some("empty"));
        assert!(is_accepted(&dead), "{dead:?}");
        assert_eq!((dead.len(), dead["n0"].data_type()), (MOST, "Number.int"));
        assert!(StoredAttributes::parse(Some(dead.clone()), Queue).letter().is_none());
        let dead = StoredAttributes::parse(Some(dead), DeadLetters);
        assert_eq!((dead.letter(), dead.origin()), (Some(letter), (Some("orders.fifo"), Some("g"))));
        assert_eq!((dead.text("id"), dead.text("body")), (Some("m-1"), Some("empty")));
        let back = StoredAttributes::parse(Some(dead.revived("m-1", None)), DeadLetters);
        assert!(back.headers() == stored.headers());
        assert_eq!((back.letter(), back.text("body"), back.text("id")), (None, None, Some("m-1")));
        assert_eq!((back.number::<u32>("deaths"), back.time("first_at")), (Some(2), Some(Timestamp(4))));
    }

    #[test]
    fn damaged_own_data_is_like_missing_data() {
        let damaged = r#"{"headers": ["%", ["AA"], [1, 2]], "id": 5, "deaths": -1, "letter": {"queue": 1}}"#;
        for own in [damaged, "{", "[1]", "null"] {
            let attributes = Attributes::from([(OWN.to_owned(), text_value(own.to_owned()).unwrap())]);
            let stored = StoredAttributes::parse(Some(attributes), DeadLetters);
            assert!(stored.headers().is_empty() && stored.letter().is_none() && stored.text("id").is_none(), "{own}");
            assert_eq!(stored.origin(), (None, None));
        }
        let binary = MessageAttributeValue::builder().data_type("Binary").binary_value(Blob::new([1])).build().unwrap();
        let stored = StoredAttributes::parse(Some([(OWN.to_owned(), binary)].into()), DeadLetters);
        assert!(stored.headers().is_empty());
    }
}
