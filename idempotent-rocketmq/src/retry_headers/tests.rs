use std::time::Duration;

use super::*;

fn read(properties: &Properties) -> Marked {
    Marked::read(properties.iter().map(|(name, value)| (name.as_str(), value.as_str())), 0)
}

fn properties(all: &[(&str, &str)]) -> Properties {
    all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

pub(crate) fn settings(tags: &str) -> Settings {
    Settings {
        name_servers: "h:1".to_owned(),
        topic: "t".to_owned(),
        place: "t".into(),
        group: "g".to_owned(),
        tags: tags.to_owned(),
        retry_topic: "g-retry".to_owned(),
        dead_topic: "g-dead".to_owned(),
        ladder: crate::delay_levels::Ladder::default(),
        batch: 1,
        expires_at_header: None,
    }
}

fn retry(attempt: u32) -> Retry {
    let mut retry = Retry::after(Duration::from_secs(1), Timestamp(17));
    retry.attempt = attempt;
    retry
}

#[test]
fn a_copy_reads_back_as_the_message_it_was_made_of() {
    let sent = properties(&[(UNIQ_KEY, "m"), (KEYS, "order-17"), (TAGS, "paid"), ("tenant", "acme"), (EMPTY, "1")]);
    let once = read(&sent).for_retry(&retry(2));
    let twice = read(&read(&once).for_retry(&retry(3)));
    assert_eq!(twice.properties, sent);
    assert_eq!((twice.id(), twice.business_key(), twice.is_empty()), (Some("m"), Some("order-17"), true));
    assert_eq!((twice.attempt, twice.first_at, twice.deaths), (Some(3), Some(Timestamp(17)), 0));
    assert_eq!(twice.headers(), [("TAGS", "paid"), ("tenant", "acme")].into_iter().collect());
    let given_back = read(&twice.as_it_was());
    assert_eq!(given_back.place, None, "nobody knew it");
    assert_eq!((given_back.attempt, given_back.first_at), (Some(3), Some(Timestamp(17))));
}

#[test]
fn a_copy_of_a_transactions_message_waits_for_no_commit_and_one_that_was_delayed_is_not_delayed_again() {
    let mut sent = properties(&[(UNIQ_KEY, "m"), ("a", "b")]);
    let own = sent.clone();
    for of_a_trip in ["TRAN_MSG", "PGROUP", "DELAY", "TIMER_DELAY_MS", "__STARTDELIVERTIME", "RETRY_TOPIC", "INNER_NUM"]
    {
        sent.insert(of_a_trip.to_owned(), "1".to_owned());
    }
    assert_eq!(read(&sent).as_it_was(), own);
}

#[test]
fn a_copy_of_a_copy_says_where_the_message_itself_lies_and_a_dead_letter_does_not() {
    let mut message = read(&properties(&[(UNIQ_KEY, "m")]));
    message.place = Place::read("17 3 broker-a");
    let copy = read(&read(&message.for_retry(&retry(2))).as_it_was());
    assert_eq!(copy.place, message.place);
    assert!(copy.headers().is_empty());
    // Sent again it lies elsewhere.
    let dead = copy.for_dead_letter(&DeadLetter::because("", Timestamp(9)), &settings("*"));
    assert!(!dead.contains_key(PLACE));
    assert_eq!(read(&properties(&[(PLACE, "17")])).place, None);
}

#[test]
fn b24_a_dead_letter_taken_back_begins_with_its_first_attempt_and_remembers_its_deaths() {
    let mut letter = DeadLetter::because("é\u{1}".repeat(2000), Timestamp(9));
    letter.deaths = 3;
    let before = read(&read(&properties(&[(UNIQ_KEY, "m")])).for_retry(&retry(9)));
    let dead = before.for_dead_letter(&letter, &settings("*"));
    assert!(dead[REASON].len() <= LONGEST_REASON && !dead[REASON].contains(SEPARATORS));
    assert_eq!((dead[TOPIC].as_str(), dead[GROUP].as_str(), dead.contains_key(ATTEMPT)), ("t", "g", false));
    let back = read(&dead);
    assert_eq!((back.attempt, back.deaths, back.first_at), (None, 3, Some(Timestamp(9))));
    assert!(back.headers().is_empty());
    // They outlast a retry.
    assert_eq!(read(&back.for_retry(&retry(2))).deaths, 3);
}

#[test]
fn n94_marks_that_make_no_sense_are_no_marks() {
    let odd = read(&properties(&[(ATTEMPT, "many"), (FIRST_AT, "-1"), (DEATHS, ""), ("end", "soon"), (HEADERS, "?")]));
    assert_eq!((odd.attempt, odd.first_at, odd.deaths, odd.expires_at(Some("end"))), (None, None, 0, None));
    assert_eq!(odd.headers(), [("end", "soon")].into_iter().collect());
}

#[test]
fn the_end_of_a_message_is_what_its_header_says_in_ms() {
    let message = read(&properties(&[("end", "7"), ("far", "18446744073709551615")]));
    assert_eq!(message.expires_at(Some("end")), Some(Timestamp(7_000)));
    assert_eq!(message.expires_at(Some("far")), Some(Timestamp(u64::MAX)));
    assert_eq!((message.expires_at(None), message.expires_at(Some("none"))), (None, None));
}
