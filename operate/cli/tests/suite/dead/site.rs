//! The same steps on each broker.
use std::fs;
use std::time::Duration;

use idempotent::Timestamp;
use idempotent::mq::{DeadLetter, Delivery, OutboundMessage, Publish, Received, Settlement, Source};
use serde_json::Value;

use crate::support::{Ran, run_without_store};

/// Returns the next delivery.
pub(crate) async fn next<S: Source>(source: &mut S) -> (Delivery, S::Tag) {
    loop {
        let received = tokio::time::timeout(Duration::from_secs(60), source.receive(1)).await.unwrap().unwrap();
        if let Received::Deliveries(mut some) = received
            && !some.is_empty()
        {
            assert_eq!(some.len(), 1);
            return some.remove(0);
        }
    }
}

/// Dead-letters the next message.
pub(crate) async fn bury<S: Source>(source: &mut S, reason: &'static str, id: Option<String>) {
    let (delivery, tag) = next(source).await;
    let mut letter = DeadLetter::because(reason, Timestamp(1_795_187_175_000_000));
    (letter.id, letter.attempts, letter.deaths) = (id, 17, delivery.deaths + 1);
    source.settler().settle(&delivery, &tag, &Settlement::DeadLetter(letter)).await.unwrap();
}

/// Publishes the three messages to a topic, and dead-letters each.
pub(crate) async fn write_letters<S: Source>(source: &mut S, publisher: &impl Publish, topic: &str) {
    for (number, body) in BODIES.iter().enumerate() {
        let message = OutboundMessage::new(topic, format!("m-{number}"), *body).header("trace", *b"secret");
        publisher.publish(&[message]).await.remove(0).unwrap();
        bury(source, REASONS[number], None).await;
    }
}

/// Takes a message that was put back. Checks its body, its header, its first attempt and its deaths.
pub(crate) async fn comes_back<S: Source>(source: &mut S, body: &[u8]) {
    let (delivery, tag) = next(source).await;
    assert_eq!(delivery.body, body);
    assert_eq!(delivery.headers.first("trace"), Some(&b"secret"[..]));
    assert_eq!((delivery.attempt, delivery.deaths), (Some(1), 1));
    source.settler().settle(&delivery, &tag, &Settlement::Ack).await.unwrap();
}

/// Three dead letters of a queue: two of `no stock`, and between them one of `no customer`.
pub(crate) struct Site<'a> {
    /// The options that name the queue.
    pub(crate) queue: &'a [&'a str],
}

/// The bodies of the three messages.
pub(crate) const BODIES: [&[u8]; 3] = [b"{\"n\": 1}", b"{\"n\": 2}\x1b[2J\xff", b"{\"n\": 3}"];
/// The reasons of the deaths.
pub(crate) const REASONS: [&str; 3] = ["no stock", "no customer\u{1b}[2J", "no stock at all"];

impl Site<'_> {
    pub(crate) fn dead(&self, command: &str, more: &[&str]) -> Ran {
        run_without_store(&[&["dead", command], self.queue, more].concat())
    }

    /// Returns the reasons of the letters in the list.
    pub(crate) fn reasons(&self, more: &[&str]) -> Vec<String> {
        let letters = self.dead("list", more).lines();
        letters.iter().map(|letter| letter["reason"].as_str().unwrap().to_owned()).collect()
    }

    /// Lists the letters and shows the second one. Returns the ids of their messages.
    pub(crate) fn is_listed(&self) -> Vec<Value> {
        let letters = self.dead("list", &[]).lines();
        let fields = |name: &str| letters.iter().map(|letter| letter[name].clone()).collect::<Vec<_>>();
        assert_eq!(fields("reason"), REASONS);
        assert_eq!(
            (fields("position"), fields("attempts")),
            ([1, 2, 3].map(Value::from).into(), vec![Value::from(17); 3])
        );
        assert_eq!((&letters[0]["died_at"], &letters[0]["deaths"]), (&"2026-11-20T15:06:15.000Z".into(), &1.into()));
        assert_eq!(fields("body_bytes"), BODIES.map(<[u8]>::len));
        assert_eq!(self.reasons(&["--cause", "stock", "--limit", "1"]), ["no stock"]);
        assert!(self.reasons(&["--min-deaths", "2"]).is_empty());

        let table = self.dead("list", &["-o", "table"]);
        assert!(table.out.contains("no customer\\u{1b}[2J") && table.out.contains("DEATHS"), "{table:?}");
        let ids: Vec<_> = letters.iter().map(|letter| letter["id"].as_str().unwrap().to_owned()).collect();
        let shown = self.dead("show", &["--id", &ids[1]]).lines();
        let header = serde_json::json!([{ "name": "trace", "bytes": 6 }]);
        assert_eq!((&shown[0]["headers"], shown[0].get("body")), (&header, None));
        let with_body = self.dead("show", &["--position", "2", "--show-body", "-o", "table"]);
        assert!(with_body.out.ends_with("{\"n\": 2}\\u{1b}[2J\\xff\n"), "{with_body:?}");
        for run in [&table, &with_body] {
            assert!(!run.out.contains('\u{1b}') && !run.out.contains("secret"), "{run:?}");
        }
        self.dead("show", &["--position", "4"]).fails(4, "none of the 3 dead letters has the position 4");
        fields("message_id")
    }

    /// Refuses what is not confirmed, puts the first letter back by its reason, and leaves the others.
    pub(crate) fn is_redriven(&self) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        let redrive = |more: &[&str]| {
            let common = ["--cause", "stock", "--limit", "1", "--reason", "corrected", "--audit", path];
            self.dead("redrive", &[&common, more].concat())
        };
        redrive(&[]).fails(6, "pass --yes");
        let dry = self.dead("redrive", &["--cause", "stock", "--limit", "1", "--dry-run", "--read-only"]).lines();
        assert_eq!((&dry[0]["reason"], &dry[0]["outcome"]), (&"no stock".into(), &"dry run".into()));
        assert_eq!((self.reasons(&[]).len(), fs::read_to_string(path).unwrap().as_str()), (3, ""), "a dry run");

        let done = redrive(&["--yes"]).lines();
        assert_eq!((&done[0]["outcome"], &done[1]["put_back"]), (&"done".into(), &1.into()));
        assert_eq!(self.reasons(&[]), REASONS[1..]);
        let log = fs::read_to_string(path).unwrap();
        let entries: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(
            (entries.len(), &entries[0]["phase"], &entries[1]["outcome"]),
            (3, &"intent".into(), &"done".into())
        );
        let subject = entries[0]["subject"].as_str().unwrap();
        assert!(subject.starts_with("at most 1 of 3 dead letters, cause stock"), "{subject}");
        assert_eq!((&entries[0]["id"], &entries[0]["by"]), (&entries[1]["id"], &"tester".into()));
    }

    /// Removes the second one of three letters, and leaves the others.
    pub(crate) fn is_discarded(&self) {
        let letters = self.dead("list", &[]).lines();
        let ids: Vec<_> = letters.iter().map(|letter| letter["id"].as_str().unwrap()).collect();
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        let discard = |more: &[&str]| {
            let common = ["--reason", "customer deleted", "--audit", path];
            self.dead("discard", &[&common, more].concat())
        };
        discard(&["--id", ids[1]]).fails(6, "pass --yes");
        discard(&["--id", ids[1], "--yes", "--read-only"]).fails(6, "--read-only");
        let dry = self.dead("discard", &["--cause", "customer", "--limit", "9", "--dry-run"]).lines();
        assert_eq!((&dry[0]["outcome"], &dry[1]["discarded"]), (&"dry run".into(), &1.into()));
        assert_eq!((self.reasons(&[]).len(), fs::read_to_string(path).unwrap().as_str()), (3, ""), "a dry run");

        let done = discard(&["--id", ids[1], "--yes"]).lines();
        assert_eq!((&done[0]["reason"], &done[0]["outcome"]), (&REASONS[1].into(), &"done".into()));
        assert_eq!([&done[1]["discarded"], &done[1]["gone"], &done[1]["passed_by"]], [1, 0, 0]);
        assert_eq!(self.reasons(&[]), [REASONS[0], REASONS[2]]);
        let log = fs::read_to_string(path).unwrap();
        let entries: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let shown: Vec<_> =
            entries.iter().map(|entry| (&entry["action"], &entry["phase"], &entry["outcome"])).collect();
        let (action, null) = (&Value::from("discard"), &Value::Null);
        let end = "done; 0 put back, 1 removed, 2 skipped, 0 gone, 0 passed by";
        let (result, end) = (&"result".into(), &end.into());
        assert!(entries[0]["subject"].as_str().unwrap().contains(ids[1]), "{log}");
        assert!(entries[1]["subject"].as_str().unwrap().starts_with(ids[1]), "{log}");
        let expected = [(action, &"intent".into(), null), (action, result, &"done".into()), (action, result, end)];
        assert_eq!(shown, expected);
        for more in ["--yes", "--dry-run"] {
            discard(&["--id", ids[1], more]).fails(4, &format!("no dead letter has the id `{}`", ids[1]));
        }
    }
}
