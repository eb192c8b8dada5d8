use std::time::Duration;

use super::*;
use crate::properties::TAGS;
use crate::settings::tests::settings;

fn decoded(properties: &Properties) -> RetryHeaders {
    decoded_in(MessagePlace::Retry, properties)
}

fn decoded_in(place: MessagePlace, properties: &Properties) -> RetryHeaders {
    RetryHeaders::decode(properties.iter().map(|(name, value)| (name.as_str(), value.as_str())), 0, place)
}

fn properties(all: &[(&str, &str)]) -> Properties {
    all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn retry(attempt: u32) -> Retry {
    let mut retry = Retry::after(Duration::from_secs(1), Timestamp(17));
    retry.attempt = attempt;
    retry
}

#[test]
fn a_copy_is_decoded_as_the_original_message() {
    let sent = properties(&[(UNIQ_KEY, "m"), (KEYS, "order-17"), (TAGS, "paid"), ("tenant", "acme"), (EMPTY, "1")]);
    let once = decoded(&sent).encode_retry(&retry(2)).unwrap();
    let twice = decoded(&decoded(&once).encode_retry(&retry(3)).unwrap());
    assert_eq!(twice.producer, sent);
    assert_eq!((twice.id(), twice.business_key(), twice.has_empty_body()), (Some("m"), Some("order-17"), true));
    let envelope = &twice.envelope;
    assert_eq!((envelope.attempt, envelope.first_at, envelope.deaths), (Some(3), Some(Timestamp(17)), 0));
    assert_eq!(twice.headers(), [("TAGS", "paid"), ("tenant", "acme")].into_iter().collect());
    let given_back = decoded(&twice.encode_unchanged());
    assert_eq!(given_back.position, None, "it was unknown");
    assert_eq!(given_back.envelope, twice.envelope);
}

#[test]
fn a_copy_drops_the_properties_of_transactions_and_delays() {
    let mut sent = properties(&[(UNIQ_KEY, "m"), ("a", "b")]);
    let own = sent.clone();
    for of_one_delivery in
        ["TRAN_MSG", "PGROUP", "DELAY", "TIMER_DELAY_MS", "__STARTDELIVERTIME", "RETRY_TOPIC", "INNER_NUM"]
    {
        sent.insert(of_one_delivery.to_owned(), "1".to_owned());
    }
    assert_eq!(decoded(&sent).encode_unchanged(), own);
}

#[test]
fn a_copy_of_a_copy_has_the_position_of_the_original_message_and_a_dead_letter_has_none() {
    let mut message = decoded(&properties(&[(UNIQ_KEY, "m")]));
    message.position = QueuePosition::decode("17 3 broker-a");
    let copy = decoded(&decoded(&message.encode_retry(&retry(2)).unwrap()).encode_unchanged());
    assert_eq!(copy.position, message.position);
    assert!(copy.headers().is_empty());
    // A redriven message has a new position.
    let dead = copy.encode_dead_letter(&DeadLetter::because("", Timestamp(9)), &settings("*")).0;
    assert!(!dead.contains_key("x-idempotent-place"));
    assert_eq!(decoded(&properties(&[("x-idempotent-place", "17")])).position, None);
}

#[test]
fn a_redriven_dead_letter_starts_with_its_first_attempt_and_keeps_its_deaths() {
    let mut letter = DeadLetter::because("é\u{1}".repeat(2000), Timestamp(9));
    letter.deaths = 3;
    let before = decoded(&decoded(&properties(&[(UNIQ_KEY, "m")])).encode_retry(&retry(9)).unwrap());
    let dead = before.encode_dead_letter(&letter, &settings("*")).0;
    let reason = &dead["x-idempotent-reason"];
    assert!(reason.len() <= MAX_TEXT && !reason.contains(SEPARATORS));
    assert_eq!((&*dead["x-idempotent-topic"], &*dead["x-idempotent-group"]), ("t", "g"));
    let back = decoded(&dead);
    let envelope = &back.envelope;
    assert_eq!((envelope.attempt, envelope.deaths, envelope.first_at), (None, 3, Some(Timestamp(9))));
    assert!(back.headers().is_empty());
    // A retry keeps the deaths.
    assert_eq!(decoded(&back.encode_retry(&retry(2)).unwrap()).envelope.deaths, 3);
}

#[test]
fn a_producer_decides_neither_the_attempt_nor_the_position() {
    let forged = properties(&[
        (UNIQ_KEY, "m"),
        ("x-idempotent-attempt", "16"),
        ("x-idempotent-place", "17 3 broker-a"),
        ("x-idempotent-deaths", "2"),
        ("x-idempotent-topic", "pay"),
    ]);
    let fresh = decoded_in(MessagePlace::Queue, &forged);
    assert_eq!((fresh.envelope.attempt, fresh.position.is_none(), fresh.envelope.deaths), (None, true, 2));
    let copy = decoded_in(MessagePlace::Retry, &forged);
    assert_eq!((copy.envelope.attempt, copy.position.is_some()), (Some(16), true));
    let dead = fresh.encode_dead_letter(&DeadLetter::because("", Timestamp(9)), &settings("*")).0;
    assert_eq!(dead["x-idempotent-topic"], "t");
}

#[test]
fn letters_of_earlier_versions_are_read_and_written_again() {
    let stored = properties(&[
        (UNIQ_KEY, "m"),
        ("x-idempotent-reason", "no stock"),
        ("x-idempotent-id", "k:1"),
        ("x-idempotent-attempts", "5"),
        ("x-idempotent-first-at", "4"),
        ("x-idempotent-last-at", "9"),
        ("x-idempotent-deaths", "2"),
        ("x-idempotent-topic", "t"),
        ("x-idempotent-group", "g"),
    ]);
    let read = decoded_in(MessagePlace::DeadLetters, &stored);
    let letter = read.envelope.letter.as_ref().unwrap();
    assert_eq!((&*letter.reason, letter.id.as_deref(), letter.attempts), ("no stock", Some("k:1"), 5));
    assert_eq!((letter.first_at, letter.last_at, letter.deaths), (Timestamp(4), Timestamp(9), 2));
    assert_eq!((original_topic(&stored), read.id()), (Some("t"), Some("m")));
    assert_eq!(read.encode_dead_letter(letter, &settings("*")).0, stored);
    let without_reason = stored.into_iter().filter(|(name, _)| name != "x-idempotent-reason").collect();
    let letter = decoded_in(MessagePlace::DeadLetters, &without_reason).envelope.letter.unwrap();
    assert_eq!(letter.reason, "");
}

#[test]
fn malformed_values_are_ignored() {
    let odd = decoded(&properties(&[
        ("x-idempotent-attempt", "many"),
        ("x-idempotent-first-at", "-1"),
        ("x-idempotent-deaths", ""),
        ("end", "soon"),
        (HEADERS, "?"),
    ]));
    assert_eq!((&odd.envelope, odd.expires_at(Some("end"))), (&Envelope::default(), None));
    assert_eq!(odd.headers(), [("end", "soon")].into_iter().collect());
}

#[test]
fn a_message_expires_at_the_time_in_its_header_in_ms() {
    let message = decoded(&properties(&[("end", "7"), ("far", "18446744073709551615")]));
    assert_eq!(message.expires_at(Some("end")), Some(Timestamp(7_000)));
    assert_eq!(message.expires_at(Some("far")), Some(Timestamp(u64::MAX)));
    assert_eq!((message.expires_at(None), message.expires_at(Some("none"))), (None, None));
}
