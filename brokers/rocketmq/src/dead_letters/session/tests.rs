use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;

use super::super::log::LetterBatch;
use super::*;
use crate::producer::PreparedMessage;
use crate::properties::{Properties, UNIQ_KEY};
use crate::queue_position::QueuePosition;

/// The state of a broker: the messages of each topic, and the committed offset.
#[derive(Clone, Debug, Default)]
struct Broker {
    topics: BTreeMap<String, Vec<String>>,
    committed: u64,
    /// The number of changes so far.
    changes: u32,
    /// The numbers of the changes that fail.
    failing: Range<u32>,
    lock: Option<u32>,
}

impl Broker {
    fn letters(ids: &[&str]) -> Shared {
        let dead = ids.iter().map(ToString::to_string).collect();
        Arc::new(Mutex::new(Self { topics: BTreeMap::from([("dead".to_owned(), dead)]), ..Self::default() }))
    }

    /// Counts a change, or fails.
    fn change(&mut self) -> Result<(), SourceError> {
        let number = self.changes;
        self.changes += 1;
        if self.failing.contains(&number) { Err(transient("this change fails")) } else { Ok(()) }
    }

    /// Returns the ids of the dead letters.
    fn dead(&self) -> Vec<&str> {
        let committed = usize::try_from(self.committed).unwrap();
        self.topics["dead"][committed..].iter().map(String::as_str).collect()
    }

    fn back(&self) -> Vec<&str> {
        self.topics.get("orders").map(|ids| ids.iter().map(String::as_str).collect()).unwrap_or_default()
    }
}

type Shared = Arc<Mutex<Broker>>;

/// The log of a session with this number.
#[derive(Debug)]
struct TestLog(Shared, u32);

#[async_trait]
impl LetterLog for TestLog {
    async fn queues(&self) -> Result<Vec<MessageQueue>, SourceError> {
        Ok(vec![MessageQueue::from_parts("dead", "broker", 0)])
    }

    async fn bounds(&self, _: &MessageQueue) -> Result<(u64, u64), SourceError> {
        Ok((0, self.0.lock().unwrap().topics["dead"].len() as u64))
    }

    async fn committed(&self, _: &MessageQueue) -> Result<u64, SourceError> {
        Ok(self.0.lock().unwrap().committed)
    }

    async fn read(&self, queue: &MessageQueue, from: u64) -> Result<LetterBatch, SourceError> {
        let broker = self.0.lock().unwrap();
        let letters = broker.topics["dead"].iter().enumerate().skip(usize::try_from(from).unwrap()).take(2);
        let letters: Vec<_> = letters.map(|(offset, id)| letter(queue, offset, id)).collect();
        Ok(LetterBatch { next: from + letters.len() as u64, letters })
    }

    async fn send(&self, message: PreparedMessage) -> Result<(), SourceError> {
        let mut broker = self.0.lock().unwrap();
        broker.change()?;
        broker.topics.entry(message.topic).or_default().push(message.properties[UNIQ_KEY].clone());
        Ok(())
    }

    async fn commit(&self, _: &MessageQueue, offset: u64) -> Result<(), SourceError> {
        let mut broker = self.0.lock().unwrap();
        broker.change()?;
        // A Java broker accepts a smaller offset.
        broker.committed = offset;
        Ok(())
    }

    async fn lock(&self, _: &MessageQueue) -> Result<bool, SourceError> {
        Ok(*self.0.lock().unwrap().lock.get_or_insert(self.1) == self.1)
    }

    async fn unlock(&self, _: &MessageQueue) {
        self.0.lock().unwrap().lock = None;
    }
}

fn letter(queue: &MessageQueue, offset: usize, id: &str) -> StoredLetter {
    StoredLetter {
        position: QueuePosition::new(queue, offset).unwrap(),
        stored_at: 0,
        properties: Properties::from([(UNIQ_KEY.to_owned(), id.to_owned())]),
        flag: 0,
        body: vec![0],
    }
}

fn session(broker: &Shared, number: u32) -> LetterSession<TestLog> {
    LetterSession::new(TestLog(broker.clone(), number), "dead".to_owned())
}

fn back() -> Handling {
    Handling::PutBack { topic: "orders".to_owned() }
}

/// Reads all letters, puts back those with an id in `back`, and removes those with an id in `gone`.
async fn work(session: &mut LetterSession<TestLog>, put_back: &str, gone: &str) -> Result<(), SourceError> {
    session.count().await?;
    while let Some(letter) = session.next().await? {
        let id = &letter.properties[UNIQ_KEY];
        if put_back.contains(id.as_str()) {
            session.handle(&back()).await?;
        } else if gone.contains(id.as_str()) {
            session.handle(&Handling::Discard).await?;
        }
    }
    Ok(())
}

#[test]
fn a_letter_that_names_another_topic_is_passed_by_until_the_operator_names_one() {
    let mut named = letter(&MessageQueue::from_parts("dead", "broker", 0), 0, "a");
    named.properties.insert("x-idempotent-topic".to_owned(), "payments".to_owned());
    let error = back().topic(&named).unwrap_err();
    assert!(error.kind() == SourceErrorKind::Refused && error.to_string().contains("`payments`"), "{error}");
    let all = Handling::PutAllBack { topic: "orders".to_owned() };
    assert_eq!((all.topic(&named).unwrap(), Handling::Discard.topic(&named).unwrap()), (Some("orders"), None));
    named.properties.insert("x-idempotent-topic".to_owned(), "orders".to_owned());
    assert_eq!(back().topic(&named).unwrap(), Some("orders"));
}

#[tokio::test]
async fn skipped_letters_are_copied_before_the_offset_passes_them_and_later_ones_stay() {
    let broker = Broker::letters(&["a", "b", "c", "d", "e"]);
    work(&mut session(&broker, 1), "c", "b").await.unwrap();
    let state = broker.lock().unwrap().clone();
    assert_eq!((state.back(), state.dead()), (vec!["c"], vec!["d", "e", "a"]));
    // The copy is a letter of the next session.
    work(&mut session(&broker, 1), "a", "de").await.unwrap();
    let state = broker.lock().unwrap().clone();
    assert_eq!((state.back(), state.dead()), (vec!["c", "a"], vec![]));
}

#[tokio::test]
async fn a_session_that_reads_changes_nothing_and_ends_at_the_letters_of_its_count() {
    let broker = Broker::letters(&["a", "b", "c"]);
    broker.lock().unwrap().failing = 0..u32::MAX;
    let mut reader = session(&broker, 1);
    assert!(reader.handle(&back()).await.is_err_and(|error| error.to_string().contains("call `next` first")));
    assert_eq!(reader.count().await.unwrap(), 3);
    broker.lock().unwrap().topics.get_mut("dead").unwrap().push("later".to_owned());
    let mut read = Vec::new();
    while let Some(letter) = reader.next().await.unwrap() {
        read.push(letter.properties[UNIQ_KEY].clone());
    }
    assert_eq!(read, ["a", "b", "c"]);
    assert_eq!((reader.count().await.unwrap(), broker.lock().unwrap().committed), (4, 0));
    assert_eq!(reader.next().await.unwrap().unwrap().offset(), 3, "a later count continues the listing");
    assert!(reader.next().await.unwrap().is_none());
}

/// Lets one change fail, or all changes from this one on, as in a process that is killed.
#[tokio::test]
async fn an_end_between_any_two_changes_loses_no_letter() {
    for number in 0.. {
        let mut is_done = true;
        for failing in [number..number + 1, number..u32::MAX] {
            is_done &= loses_nothing(failing).await;
        }
        if is_done {
            assert!(number > 5, "{number}");
            return;
        }
    }
}

/// Puts back two letters of five while changes fail, and then in a second session. Returns whether no change has failed.
async fn loses_nothing(failing: Range<u32>) -> bool {
    let broker = Broker::letters(&["a", "b", "c", "d", "e"]);
    broker.lock().unwrap().failing = failing.clone();
    let is_done = work(&mut session(&broker, 1), "bd", "").await.is_ok();
    {
        let state = broker.lock().unwrap();
        for id in ["a", "b", "c", "d", "e"] {
            let exists = state.dead().contains(&id) || "bd".contains(id) && state.back().contains(&id);
            assert!(exists, "{failing:?}: {id} is lost: {state:?}");
        }
    }
    broker.lock().unwrap().failing = 0..0;
    work(&mut session(&broker, 2), "bd", "").await.unwrap();
    let state = broker.lock().unwrap();
    let sorted = |mut ids: Vec<&str>| {
        ids.sort_unstable();
        ids.dedup();
        ids.concat()
    };
    assert_eq!((sorted(state.dead()), sorted(state.back())), ("ace".to_owned(), "bd".to_owned()), "{failing:?}");
    is_done
}

#[tokio::test]
async fn a_failed_step_is_repeated_on_the_same_letter() {
    let broker = Broker::letters(&["a", "b", "c"]);
    // The message and the first copy are stored, and the second copy is not.
    broker.lock().unwrap().failing = 2..u32::MAX;
    let mut operator = session(&broker, 1);
    for _ in 0..3 {
        operator.next().await.unwrap();
    }
    let error = operator.handle(&back()).await.unwrap_err().to_string();
    assert!(error.contains("the message is in its topic"), "{error}");
    broker.lock().unwrap().failing = 0..0;
    assert!(operator.handle(&back()).await.unwrap());
    let state = broker.lock().unwrap();
    assert_eq!((state.back(), state.dead()), (vec!["c", "c"], vec!["a", "b"]), "each copy is stored once");
}

/// Alternates the steps of two sessions that read the same letters, in each order.
#[tokio::test]
async fn two_sessions_at_once_lose_no_letter_and_no_removed_letter_returns() {
    let ids = ["a", "b", "c", "d"];
    for order in 0..1_u32 << 8 {
        let broker = Broker::letters(&ids);
        let mut sessions = [session(&broker, 0), session(&broker, 1)];
        let mut removed = Vec::new();
        for step in 0..8 {
            let turn = usize::from(order & 1 << step != 0);
            let Some(letter) = sessions[turn].next().await.unwrap() else { continue };
            let id = letter.properties[UNIQ_KEY].clone();
            // The sessions skip different letters.
            let handling = match (turn, id.as_str()) {
                (0, "b") | (1, "c") => Handling::Discard,
                (0, "d") | (1, "a") => back(),
                _ => continue,
            };
            let is_removal = matches!(handling, Handling::Discard);
            if sessions[turn].handle(&handling).await.unwrap() && is_removal {
                removed.push(id);
            }
        }
        let state = broker.lock().unwrap();
        for id in ids {
            let exists = state.dead().contains(&id) || state.back().contains(&id);
            let is_removed = removed.iter().any(|removed| removed == id);
            assert!(exists != is_removed, "order {order:b}: {id} of {state:?}, removed: {removed:?}");
        }
        assert_eq!(state.lock, None);
    }
}

#[tokio::test]
async fn a_session_waits_for_the_lock_of_another_one_and_gives_up_with_the_remedy() {
    let broker = Broker::letters(&["a"]);
    broker.lock().unwrap().lock = Some(9);
    let mut operator = session(&broker, 1);
    operator.next().await.unwrap();
    let error = operator.handle(&back()).await.unwrap_err().to_string();
    assert!(error.contains("another session"), "{error}");
    assert_eq!(broker.lock().unwrap().back(), Vec::<&str>::new());
    broker.lock().unwrap().lock = None;
    assert!(operator.handle(&back()).await.unwrap());
}

#[tokio::test]
async fn an_offset_after_the_end_is_an_error_with_the_remedy() {
    let broker = Broker::letters(&["a"]);
    broker.lock().unwrap().committed = 2;
    let error = session(&broker, 1).count().await.unwrap_err();
    assert!(error.kind() == SourceErrorKind::Fatal && error.to_string().contains("reset the offset"), "{error}");
}
