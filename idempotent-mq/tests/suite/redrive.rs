//! Putting dead letters back.
use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::{
    Claim, ClaimHandle, ClaimRequest, Identity, Key, MemoryStore, OnExpiry, OwnerToken, Release, ReleaseKind, Scene,
    Settled, StateKind, Store, Timestamp,
};
use idempotent_mq::{
    DeadLetter, DeadLetters, Delivery, MemoryDeadLetters, MemoryQueue, Position, Received, Redrive, RedriveResult,
    Settlement, Source, SourceError, SourceErrorKind, StoredLetter,
};

const HOUR: Duration = Duration::from_secs(3600);

/// A dead-letter queue that behaves as the bodies of its letters demand.
#[derive(Default)]
struct Place {
    lying: VecDeque<(&'static str, Option<DeadLetter>)>,
    /// Passed over, or brought and not put back.
    left: Vec<&'static str>,
    taken: Option<&'static str>,
    queue: Vec<&'static str>,
    discarded: Vec<&'static str>,
    /// Cannot be put back.
    refused: &'static str,
    /// Can neither be put back nor removed, unlike the others.
    stuck: &'static str,
    /// Dies again at once.
    hopeless: &'static str,
    /// The letter that another program puts back.
    elsewhere: &'static str,
    /// The number of letters that are counted and that another reader holds.
    held: u64,
}

impl Place {
    fn check(&mut self, body: &'static str) -> Result<(), SourceError> {
        if body != self.stuck {
            return Ok(());
        }
        self.left.push(body);
        Err(SourceError::new(SourceErrorKind::Refused, "its queue is unknown"))
    }

    fn of(letters: &[&'static str]) -> Self {
        Self { lying: letters.iter().map(|letter| (*letter, None)).collect(), ..Self::default() }
    }
}

#[async_trait]
impl DeadLetters for Place {
    async fn count(&mut self) -> Result<u64, SourceError> {
        Ok(self.lying.len() as u64 + self.held)
    }

    async fn next(&mut self) -> Result<Option<StoredLetter>, SourceError> {
        self.left.extend(self.taken.take());
        let Some((body, letter)) = self.lying.pop_front() else { return Ok(None) };
        self.taken = Some(body);
        Ok(Some(StoredLetter::at(body, Delivery::new(Position::of("orders.dead"), body.into()), letter)))
    }

    async fn put_back(&mut self) -> Result<bool, SourceError> {
        let body = self.taken.take().unwrap();
        if body == self.refused {
            self.left.push(body);
            return Err(SourceError::new(SourceErrorKind::Fatal, "no such queue"));
        }
        self.check(body)?;
        if body == self.elsewhere {
            return Ok(false);
        }
        self.queue.push(body);
        if body == self.hopeless {
            self.lying.push_back((body, None));
        }
        Ok(true)
    }

    async fn discard(&mut self) -> Result<bool, SourceError> {
        let body = self.taken.take().unwrap();
        if body == self.refused {
            return Err(SourceError::new(SourceErrorKind::Transient, "no connection"));
        }
        self.check(body)?;
        if body == self.elsewhere {
            return Ok(false);
        }
        self.discarded.push(body);
        Ok(true)
    }
}

#[tokio::test]
async fn a_discarding_redrive_removes_the_selected_letters_and_puts_none_back() {
    let mut place = Place { elsewhere: "b", ..Place::of(&["a", "b", "c", "d", "e"]) };
    let (redrive, results) = observed(Redrive::new().limit(2).only(|letter| letter.delivery.body != b"a").discarding());
    let summary = redrive.run(&mut place).await;
    assert_eq!((summary.discarded, summary.put_back, summary.gone, summary.skipped), (2, 0, 1, 1));
    assert_eq!((&place.discarded[..], &place.left[..], place.queue.len()), (&["c", "d"][..], &["a"][..], 0));
    assert_eq!(*results.lock().unwrap(), ["b gone -", "c discarded -", "d discarded -"]);

    let mut place = Place::of(&["a", "b"]);
    let (redrive, results) = observed(Redrive::new().discarding().dry_run());
    let summary = redrive.run(&mut place).await;
    assert_eq!((summary.discarded, place.discarded.len()), (2, 0));
    assert_eq!(*results.lock().unwrap(), ["a would discard -", "b would discard -"]);
    let mut place = Place { refused: "b", ..Place::of(&["a", "b", "c"]) };
    let summary = Redrive::new().discarding().run(&mut place).await;
    assert_eq!((summary.discarded, summary.failed.is_some(), place.lying.len()), (1, true, 1));
}

#[tokio::test]
async fn a_discarding_redrive_lets_no_key_go() {
    let store = MemoryStore::new();
    let (key, letter) = buried(&store, "a").await;
    let mut place = Place::default();
    place.lying.push_back(("a", Some(letter)));
    let summary = Redrive::new().letting_go(store.clone()).discarding().run(&mut place).await;
    let state = store.peek(&key).await.unwrap().unwrap().state.kind();
    assert_eq!((summary.discarded, state), (1, StateKind::Dead));
}

#[tokio::test(start_paused = true)]
async fn a_redrive_stops_between_two_letters() {
    let done = Arc::new(Mutex::new(0));
    let (counted, seen) = (done.clone(), done.clone());
    let redrive =
        Redrive::new().on_each(move |_| *counted.lock().unwrap() += 1).stop_if(move || *seen.lock().unwrap() == 2);
    let mut place = Place::of(&["a", "b", "c"]);
    let summary = redrive.run(&mut place).await;
    assert_eq!((summary.put_back, summary.is_stopped, place.lying.len()), (2, true, 1));
    // After the last letter, there is nothing to stop.
    *done.lock().unwrap() = 1;
    assert!(!redrive.run(&mut place).await.is_stopped);
    // The request arrives while the redrive waits for its rate.
    let asked = Arc::new(Mutex::new(0));
    let redrive = Redrive::new().rate(NonZeroU32::MIN).stop_if(move || {
        let mut asked = asked.lock().unwrap();
        *asked += 1;
        // The third letter is the first one for which the second question has another answer.
        *asked == 6
    });
    let mut place = Place::of(&["a", "b", "c", "d"]);
    let summary = redrive.run(&mut place).await;
    assert_eq!((summary.put_back, summary.is_stopped, &place.queue[..]), (2, true, &["a", "b"][..]));
}

#[tokio::test]
async fn letters_are_put_back_from_the_oldest_on_and_no_more_than_the_limit() {
    let mut place = Place::of(&["a", "b", "c"]);
    let redriven = Redrive::new().limit(2).run(&mut place).await;
    assert_eq!((redriven.put_back, redriven.failed.is_none(), &place.queue[..]), (2, true, &["a", "b"][..]));
    let redriven = Redrive::new().run(&mut place).await;
    assert_eq!((redriven.put_back, &place.queue[..]), (1, &["a", "b", "c"][..]));
}

#[tokio::test]
async fn a_letter_that_dies_again_meanwhile_is_not_put_back_twice() {
    let mut place = Place { hopeless: "a", ..Place::of(&["a", "b"]) };
    let redriven = Redrive::new().run(&mut place).await;
    assert_eq!((redriven.put_back, &place.queue[..], place.lying.len()), (2, &["a", "b"][..], 1));
}

#[tokio::test]
async fn the_first_message_that_cannot_be_redriven_keeps_its_place_and_ends_the_redrive() {
    let mut place = Place { refused: "b", ..Place::of(&["a", "b", "c"]) };
    let redriven = Redrive::new().run(&mut place).await;
    assert_eq!((redriven.put_back, redriven.failed.unwrap().kind()), (1, SourceErrorKind::Fatal));
    assert_eq!((&place.queue[..], &place.left[..], place.lying.len()), (&["a"][..], &["b"][..], 1));
}

#[tokio::test]
async fn a_letter_that_is_refused_is_passed_by_and_those_behind_it_are_not() {
    for discards in [false, true] {
        let mut place = Place { stuck: "b", ..Place::of(&["a", "b", "c"]) };
        let redrive = if discards { Redrive::new().discarding() } else { Redrive::new() };
        let (redrive, results) = observed(redrive);
        let summary = redrive.run(&mut place).await;
        assert_eq!((summary.put_back + summary.discarded, summary.passed_by, summary.failed.is_none()), (2, 1, true));
        let word = if discards { "discarded" } else { "put back" };
        assert_eq!(*results.lock().unwrap(), [format!("a {word} -"), "b passed by -".into(), format!("c {word} -")]);
        assert_eq!(place.left, ["b"]);
    }
}

#[tokio::test]
async fn exactly_the_named_letters_are_removed_although_others_have_their_message_id() {
    let queue = MemoryQueue::new("orders");
    let mut source = queue.source();
    for id in ["m-1", "m-1", "m-2"] {
        queue.send_delivery(Delivery::new(Position::of("orders"), b"{}".to_vec()).id(id));
        let Received::Deliveries(taken) = source.receive(1).await.unwrap() else { unreachable!() };
        let letter = Settlement::DeadLetter(DeadLetter::because("no stock", Timestamp(9)));
        source.settler().settle(&taken[0].0, &taken[0].1, &letter).await.unwrap();
    }
    let mut letters = MemoryDeadLetters::new(&queue);
    let mut ids = Vec::new();
    while let Some(letter) = letters.next().await.unwrap() {
        ids.push(letter.id);
    }
    let ticked = Redrive::new().named(ids[1..].iter().cloned()).discarding();
    let summary = ticked.run(&mut MemoryDeadLetters::new(&queue)).await;
    assert_eq!((summary.discarded, summary.skipped, summary.gone), (2, 1, 0));
    let left = MemoryDeadLetters::new(&queue).next().await.unwrap().unwrap();
    assert_eq!((left.id, queue.dead_letters().len()), (ids.remove(0), 1));
}

#[tokio::test]
async fn a_message_that_another_process_has_redriven_is_not_counted() {
    let mut place = Place { elsewhere: "a", ..Place::of(&["a", "b"]) };
    assert_eq!(Redrive::new().limit(1).run(&mut place).await.put_back, 1);
    assert_eq!(place.queue, ["b"]);
}

#[tokio::test]
async fn letters_that_another_reader_holds_are_counted_as_unread() {
    let mut place = Place { held: 2, ..Place::of(&["a", "b", "c"]) };
    let redriven = Redrive::new().limit(1).run(&mut place).await;
    assert_eq!((redriven.put_back, redriven.unread), (1, 0), "the limit ends the redrive");
    let redriven = Redrive::new().run(&mut place).await;
    assert_eq!((redriven.put_back, redriven.unread, redriven.failed.is_none()), (2, 2, true));
    let redriven = Redrive::new().run(&mut place).await;
    assert_eq!((redriven.put_back, redriven.unread), (0, 2));
}

/// A key that was given up, and its dead letter.
async fn buried(store: &MemoryStore, body: &str) -> (Key, DeadLetter) {
    let key = Identity::new(Scene::Mq, "billing", body).key("shop").unwrap();
    let owner = OwnerToken(17);
    let (fingerprint, max_attempts, on_expiry, display) = (None, 0, OnExpiry::Takeover, None);
    let (lease, retention) = (HOUR, HOUR);
    let asked =
        ClaimRequest { key: key.clone(), owner, lease, fingerprint, max_attempts, on_expiry, retention, display };
    let Claim::Acquired(grant) = store.claim(&asked).await.unwrap() else { panic!("it is nobody's") };
    let held = ClaimHandle { fencing: Some(grant.fencing), ..ClaimHandle::unanswered(key.clone(), owner) };
    let release =
        Release { kind: ReleaseKind::MarkDead, delay: Duration::ZERO, retention: HOUR, error: "no stock".into() };
    assert_eq!(store.release(&held, &release).await.unwrap(), Settled::Done);
    let mut letter = DeadLetter::because("no stock", Timestamp(9));
    letter.id = Some(format!("{key}:{}", grant.fencing));
    (key, letter)
}

#[tokio::test]
async fn a_key_is_released_before_its_letter_is_put_back_and_only_as_the_letter_knows_it() {
    let store = MemoryStore::new();
    let (key, letter) = buried(&store, "a").await;
    let (other, mut stale) = buried(&store, "b").await;
    stale.id = Some(format!("{other}:1"));
    let mut place = Place::default();
    place.lying.extend([("a", Some(letter.clone())), ("b", Some(stale)), ("c", None)]);
    assert_eq!(letter.key().unwrap().0, key);
    let redriven = Redrive::new().letting_go(store.clone()).run(&mut place).await;
    assert_eq!((redriven.put_back, redriven.failed.is_none()), (3, true));
    let state = async |key: &Key| store.peek(key).await.unwrap().unwrap().state.kind();
    assert_eq!((state(&key).await, state(&other).await), (StateKind::Vacant, StateKind::Dead));
}

/// Returns a redrive that writes the result of each letter into a list, and the list.
fn observed(redrive: Redrive) -> (Redrive, Arc<Mutex<Vec<String>>>) {
    let results = Arc::new(Mutex::new(Vec::new()));
    let into = results.clone();
    let redrive = redrive.on_each(move |step| {
        let body = String::from_utf8_lossy(&step.letter.delivery.body).into_owned();
        let result = match step.result {
            RedriveResult::PutBack => "put back",
            RedriveResult::WouldPutBack => "would",
            RedriveResult::Discarded => "discarded",
            RedriveResult::WouldDiscard => "would discard",
            RedriveResult::Gone => "gone",
            RedriveResult::PassedBy(_) => "passed by",
            RedriveResult::Failed(_) => "failed",
            _ => "?",
        };
        into.lock().unwrap().push(format!("{body} {result} {}", step.key.map_or("-".into(), |key| format!("{key:?}"))));
    });
    (redrive, results)
}

#[tokio::test]
async fn only_selected_letters_are_put_back_and_the_others_do_not_count_towards_the_limit() {
    let mut place = Place { elsewhere: "d", refused: "f", ..Place::of(&["a", "b", "c", "d", "e", "f"]) };
    let (redrive, results) = observed(Redrive::new().only(|letter| !matches!(&*letter.delivery.body, b"a" | b"c")));
    let redriven = redrive.run(&mut place).await;
    assert_eq!((redriven.put_back, redriven.skipped, redriven.gone, redriven.failed.is_some()), (2, 2, 1, true));
    assert_eq!((&place.queue[..], &place.left[..]), (&["b", "e"][..], &["a", "c", "f"][..]));
    assert_eq!(*results.lock().unwrap(), ["b put back -", "d gone -", "e put back -", "f failed -"]);
    let mut place = Place::of(&["a", "b", "c"]);
    assert_eq!(Redrive::new().limit(1).only(|letter| letter.delivery.body == b"b").run(&mut place).await.put_back, 1);
    assert_eq!((&place.queue[..], place.lying.len()), (&["b"][..], 1));
}

#[tokio::test]
async fn a_dry_run_changes_neither_a_letter_nor_a_key() {
    let store = MemoryStore::new();
    let (key, letter) = buried(&store, "a").await;
    let mut place = Place::default();
    place.lying.extend([("a", Some(letter.clone())), ("b", None), ("c", None)]);
    let (redrive, results) = observed(Redrive::new().limit(2).letting_go(store.clone()));
    let redriven = redrive.clone().dry_run().run(&mut place).await;
    assert_eq!((redriven.put_back, place.queue.len(), place.taken), (2, 0, Some("b")));
    assert_eq!(store.peek(&key).await.unwrap().unwrap().state.kind(), StateKind::Dead);
    place.lying = [("a", Some(letter))].into();
    assert_eq!(redrive.run(&mut place).await.put_back, 1);
    assert_eq!(*results.lock().unwrap(), ["a would -", "b would -", "a put back Done"]);
}

#[tokio::test(start_paused = true)]
async fn letters_are_put_back_at_the_rate() {
    let start = tokio::time::Instant::now();
    let rate = NonZeroU32::new(4).unwrap();
    let redriven = Redrive::new().rate(rate).run(&mut Place::of(&["a", "b", "c", "d", "e"])).await;
    assert_eq!((redriven.put_back, start.elapsed()), (5, Duration::from_secs(1)));
}

#[tokio::test]
async fn functions_of_a_redrive_that_panic_select_nothing_lose_no_count_and_stop_the_redrive() {
    let mut place = Place::of(&["a", "b", "c"]);
    let only = |letter: &StoredLetter| {
        assert_ne!(&*letter.delivery.body, b"b", "as told");
        true
    };
    let summary = Redrive::new().only(only).on_each(|_| panic!("as told")).run(&mut place).await;
    assert_eq!((summary.put_back, summary.skipped, summary.failed.is_none()), (2, 1, true));
    assert_eq!(place.queue, ["a", "c"]);
    let mut place = Place::of(&["a"]);
    let summary = Redrive::new().stop_if(|| panic!("as told")).run(&mut place).await;
    assert_eq!((summary.put_back, summary.is_stopped), (0, true));
}
