use super::*;

fn queue() -> Queue {
    Queue::quorum("q")
}

fn decode(properties: BasicProperties) -> RetryHeaders {
    RetryHeaders::decode(properties, &queue(), &ExpirySettings::default(), Timestamp(5_000_000))
}

fn table(entries: &[(&str, AMQPValue)]) -> FieldTable {
    FieldTable::from(entries.iter().map(|(name, value)| ((*name).into(), value.clone())).collect::<HeaderTable>())
}

fn text(text: &str) -> AMQPValue {
    AMQPValue::LongString(text.into())
}

/// Returns the copy as the broker delivers it after its time in a retry queue.
fn waited(copy: BasicProperties) -> BasicProperties {
    let mut headers = copy.headers().clone().unwrap_or_default();
    let death = table(&[("queue", text("q.retry.1000")), ("reason", text("expired"))]);
    headers.insert("x-death".into(), AMQPValue::FieldArray(vec![AMQPValue::FieldTable(death)].into()));
    copy.with_headers(headers)
}

fn retry(attempt: u32) -> Retry {
    let mut retry = Retry::after(std::time::Duration::from_secs(1), Timestamp(17));
    retry.attempt = attempt;
    retry
}

#[test]
fn a_decoded_copy_equals_the_message_it_was_made_of() {
    let headers =
        table(&[("CC", AMQPValue::FieldArray(vec![text("other")].into())), ("a", text("b")), ("z", text("y"))]);
    let properties = BasicProperties::default()
        .with_headers(headers.clone())
        .with_message_id("m".into())
        .with_type("t".into())
        .with_expiration("60000".into())
        .with_user_id("somebody".into());
    let once = waited(decode(properties).encode_retry(&retry(2)));
    assert!(once.expiration().is_none() && once.user_id().is_none(), "the broker would act on these properties");
    assert!(!once.headers().as_ref().unwrap().contains_key("CC"), "the copy would also go to the other queue");
    let twice = decode(waited(decode(once).encode_retry(&retry(3))));
    assert_eq!(twice.headers, headers);
    let id = twice.properties.message_id().as_ref().map(|id| id.as_str());
    assert_eq!((id, twice.properties.kind().as_ref().unwrap().as_str()), (Some("m"), "t"));
    let envelope = &twice.envelope;
    assert_eq!((envelope.attempt, envelope.first_at, twice.delivered), (Some(3), Some(Timestamp(17)), 1));
    assert_eq!((twice.expiration.as_deref(), twice.user.as_deref()), (Some("60000"), Some("somebody")));
    assert_eq!(twice.expires_at, Some(Timestamp(65_000_000)));
}

#[test]
fn the_brokers_headers_about_retry_queues_are_removed_and_about_other_queues_kept() {
    let death = |queue: &str| AMQPValue::FieldTable(table(&[("queue", text(queue))]));
    let both = AMQPValue::FieldArray(vec![death("q.retry.100"), death("elsewhere")].into());
    let of_others = table(&[("x-death", both), ("x-first-death-queue", text("elsewhere"))]);
    let left = decode(BasicProperties::default().with_headers(of_others)).headers;
    let one = AMQPValue::FieldArray(vec![death("elsewhere")].into());
    assert_eq!(left, table(&[("x-death", one), ("x-first-death-queue", text("elsewhere"))]));
    let ours = table(&[
        ("x-death", AMQPValue::FieldArray(vec![death("q.retry.5000")].into())),
        ("x-first-death-queue", text("q.retry.5000")),
        ("x-first-death-reason", text("expired")),
        ("x-first-death-exchange", text("")),
        ("x-delivery-count", AMQPValue::LongLongInt(4)),
    ]);
    let decoded = decode(BasicProperties::default().with_headers(ours));
    assert_eq!((decoded.headers, decoded.delivered), (FieldTable::default(), 5));
}

#[test]
fn the_delay_of_the_plugin_is_on_no_copy_dead_letter_or_redriven_message_and_a_handler_sees_that_of_its_producer() {
    let delay = |ms| table(&[("x-delay", AMQPValue::LongInt(ms)), ("a", text("b"))]);
    let is_kept = |copy: &BasicProperties, ms| {
        let headers = copy.headers().as_ref().unwrap().inner();
        assert_eq!(headers.get("x-delay"), None, "an exchange of the plugin would delay the message again");
        assert_eq!(decode(copy.clone()).headers, delay(ms));
    };
    for ms in [-5_000, 5_000] {
        let message = BasicProperties::default().with_headers(delay(ms));
        is_kept(&decode(message.clone()).encode_retry(&retry(2)), ms);
        let letter = DeadLetter::because("no stock", Timestamp(9));
        is_kept(&decode(message.clone()).encode_dead_letter(&letter, "q", |_| true).0, ms);
        is_kept(&redriven_properties(&message, "q"), ms);
    }
}

#[test]
fn a_handler_sees_no_delay_of_a_publisher_of_this_crate() {
    let delayed = |more: &[(&str, AMQPValue)]| {
        let by_plugin = [("x-delay", AMQPValue::LongLongInt(-300)), ("idempotent-delay-to", text("queue q"))];
        decode(BasicProperties::default().with_headers(table(&[&by_plugin, more].concat()))).headers
    };
    assert_eq!(delayed(&[]), FieldTable::default());
    // Queues have delayed this message, so the header is the producer's.
    let of_producer = table(&[("x-delay", AMQPValue::LongLongInt(-300))]);
    assert_eq!(delayed(&[("idempotent-delay-first", text("300"))]), of_producer);
}

#[test]
fn malformed_own_headers_are_ignored() {
    let odd = table(&[
        ("x-idempotent-attempt", text("many")),
        ("x-idempotent-first-at", AMQPValue::LongLongInt(-1)),
        ("x-idempotent-deaths", AMQPValue::Void),
    ]);
    let decoded = decode(BasicProperties::default().with_headers(odd).with_expiration("soon".into()));
    assert_eq!((decoded.envelope, decoded.expires_at), (Envelope::default(), None));
    let far = BasicProperties::default().with_expiration(u64::MAX.to_string().into()).with_timestamp(u64::MAX);
    let by_timestamp = ExpirySettings { header: None, by_timestamp: true };
    assert_eq!(RetryHeaders::decode(far, &queue(), &by_timestamp, Timestamp(0)).expires_at, Some(Timestamp(u64::MAX)));
}

#[test]
fn a_message_never_expires_earlier_than_at_the_broker_unless_its_producer_says_so() {
    let sent = BasicProperties::default().with_timestamp(1).with_expiration("500".into());
    // The message arrived at the broker at 5 s at the latest. Its timestamp may be the time of an earlier event.
    assert_eq!(decode(sent.clone()).expires_at, Some(Timestamp(5_500_000)));
    let by_timestamp = ExpirySettings { header: Some("end".to_owned()), by_timestamp: true };
    let expires_at = |message| RetryHeaders::decode(message, &queue(), &by_timestamp, Timestamp(5_000_000)).expires_at;
    assert_eq!(expires_at(sent.clone()), Some(Timestamp(2_500_000)));
    for (value, at) in [(AMQPValue::Timestamp(7), 7_000_000), (AMQPValue::LongLongInt(7), 7_000), (text("8"), 8_000)] {
        assert_eq!(expires_at(sent.clone().with_headers(table(&[("end", value)]))), Some(Timestamp(at)));
    }
}

#[test]
fn a_dead_letter_does_not_expire_even_after_a_redrive() {
    let properties = BasicProperties::default().with_expiration("1".into()).with_timestamp(1);
    let reason = DeadLetter::because("é".repeat(2000), Timestamp(9));
    let (letter, _) = decode(properties).encode_dead_letter(&reason, "q", |_| true);
    let back = decode(letter);
    assert_eq!((back.expires_at, back.envelope.deaths, back.expiration.as_deref()), (None, 1, Some("1")));
}

/// Returns headers of this crate on a message that a producer has sent.
fn forged() -> Vec<(&'static str, AMQPValue)> {
    let numbers = [
        ("x-idempotent-attempt", 9),
        ("x-idempotent-first-at", 1),
        ("x-idempotent-deaths", 3),
        ("x-idempotent-expires-at", 1),
        ("x-idempotent-attempts", 9),
        ("x-idempotent-last-at", 1),
    ];
    let texts = [("x-idempotent-reason", "no stock"), ("x-idempotent-id", "other"), ("x-idempotent-queue", "payments")];
    let texts = texts.map(|(name, value)| (name, text(value)));
    numbers.map(|(name, value)| (name, AMQPValue::LongLongInt(value))).into_iter().chain(texts).collect()
}

#[test]
fn letters_of_earlier_versions_are_read_and_written_again() {
    let stored = table(
        &forged()
            .into_iter()
            .filter(|(name, _)| !name.ends_with("attempt") && !name.ends_with("expires-at"))
            .collect::<Vec<_>>(),
    );
    let letter = decode_letter(&BasicProperties::default().with_headers(stored.clone()), &queue()).unwrap();
    assert_eq!((&*letter.reason, letter.id.as_deref(), letter.attempts), ("no stock", Some("other"), 9));
    assert_eq!((letter.first_at, letter.last_at, letter.deaths), (Timestamp(1), Timestamp(1), 3));
    let (again, _) = decode(BasicProperties::default()).encode_dead_letter(&letter, "payments", |_| true);
    assert_eq!(again.headers().as_ref(), Some(&stored));
}

#[test]
fn the_attempt_and_the_expiry_of_a_message_are_believed_only_if_it_has_left_a_retry_queue() {
    let message = BasicProperties::default().with_headers(table(&forged())).with_expiration("60000".into());
    let fresh = decode(message.clone());
    assert_eq!((fresh.envelope.attempt, fresh.expires_at), (None, Some(Timestamp(65_000_000))));
    // For operators only.
    assert_eq!((fresh.envelope.first_at, fresh.envelope.deaths), (Some(Timestamp(1)), 3));
    let copy = decode(waited(message.clone()));
    assert_eq!((copy.envelope.attempt, copy.expires_at), (Some(9), Some(Timestamp(1))));
    // A death in another queue, or for another reason, is not that of a copy.
    for (queue, reason) in [("other.retry.1000", "expired"), ("q.retry.1000", "rejected"), ("q", "expired")] {
        let death = table(&[("queue", text(queue)), ("reason", text(reason))]);
        let deaths = AMQPValue::FieldArray(vec![AMQPValue::FieldTable(death)].into());
        let headers = table(&[forged(), vec![("x-death", deaths)]].concat());
        assert_eq!(decode(BasicProperties::default().with_headers(headers)).envelope.attempt, None, "{queue} {reason}");
    }
}

#[test]
fn a_message_that_the_broker_dead_letters_has_no_letter_and_no_attempts_of_its_producer() {
    let died = |of: &str| {
        let death = table(&[("queue", text(of)), ("reason", text("maxlen")), ("time", AMQPValue::Timestamp(7))]);
        let deaths = AMQPValue::FieldArray(vec![AMQPValue::FieldTable(death)].into());
        let headers = table(&[forged(), vec![("x-death", deaths)]].concat());
        decode_letter(&BasicProperties::default().with_headers(headers), &queue())
    };
    let letter = died("q").unwrap();
    assert!(letter.reason.starts_with("maxlen"), "{}", letter.reason);
    assert_eq!((letter.attempts, letter.last_at, letter.id), (1, Timestamp(7_000_000), None));
    assert_eq!(died("payments"), None, "a message that died elsewhere");
}

#[test]
fn a_dead_letter_that_does_not_fit_loses_its_largest_headers_and_its_reason_names_them() {
    let big = |bytes: usize| text(&"v".repeat(bytes));
    let headers = table(&[("large", big(300)), ("larger", big(400)), ("small", big(3)), ("CC", big(2))]);
    let message = decode(BasicProperties::default().with_headers(headers).with_message_id("m".into()));
    let bytes = |letter: &BasicProperties| format!("{:?}", letter.headers()).len();
    let letter = DeadLetter::because("no stock", Timestamp(9));
    let (whole, left_out) = message.encode_dead_letter(&letter, "q", |_| true);
    assert!(left_out.is_empty() && whole.headers().as_ref().unwrap().contains_key("larger"));
    let mut limit = bytes(&whole);
    for expected in [vec![], vec!["larger"], vec!["larger", "large"]] {
        let (encoded, left_out) = message.encode_dead_letter(&letter, "q", |letter| bytes(letter) <= limit);
        assert_eq!(left_out, expected);
        let stored = decode_letter(&encoded, &queue()).unwrap();
        assert!(stored.reason.starts_with("no stock"), "{}", stored.reason);
        assert!(expected.iter().all(|name| stored.reason.contains(name)), "{}", stored.reason);
        // The next letter must be smaller.
        limit = bytes(&encoded) - 1;
        assert_eq!(decode(encoded).headers.inner().len(), 4 - expected.len());
    }
    let (none, left_out) = message.encode_dead_letter(&letter, "q", |_| false);
    assert_eq!((left_out.len(), none.message_id().as_ref().unwrap().as_str()), (4, "m"));
}
