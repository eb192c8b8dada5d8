//! Putting dead letters back.
use std::collections::VecDeque;
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::{
    Claim, ClaimHandle, ClaimRequest, Identity, Key, MemoryStore, OnExpiry, OwnerToken, Release, ReleaseKind, Scene,
    Settled, StateKind, Store, Timestamp,
};
use idempotent_mq::{DeadLetter, DeadLetters, Delivery, Position, Redrive, SourceError, SourceErrorKind};

const HOUR: Duration = Duration::from_secs(3600);

/// A dead-letter queue that behaves as the bodies of its letters demand.
#[derive(Default)]
struct Place {
    lying: VecDeque<(&'static str, Option<DeadLetter>)>,
    /// Passed over, or brought and not put back.
    left: Vec<&'static str>,
    taken: Option<&'static str>,
    queue: Vec<&'static str>,
    /// Cannot be put back.
    refused: &'static str,
    /// Dies again at once.
    hopeless: &'static str,
    /// The letter that another program puts back.
    elsewhere: &'static str,
}

impl Place {
    fn of(letters: &[&'static str]) -> Self {
        Self { lying: letters.iter().map(|letter| (*letter, None)).collect(), ..Self::default() }
    }
}

#[async_trait]
impl DeadLetters for Place {
    async fn count(&mut self) -> Result<u64, SourceError> {
        Ok(self.lying.len() as u64)
    }

    async fn next(&mut self) -> Result<Option<(Delivery, Option<DeadLetter>)>, SourceError> {
        self.left.extend(self.taken.take());
        let Some((body, letter)) = self.lying.pop_front() else { return Ok(None) };
        self.taken = Some(body);
        Ok(Some((Delivery::new(Position::of("orders.dead"), body.into()), letter)))
    }

    async fn put_back(&mut self) -> Result<bool, SourceError> {
        let body = self.taken.take().unwrap();
        if body == self.refused {
            self.left.push(body);
            return Err(SourceError::new(SourceErrorKind::Fatal, "no such queue"));
        }
        if body == self.elsewhere {
            return Ok(false);
        }
        self.queue.push(body);
        if body == self.hopeless {
            self.lying.push_back((body, None));
        }
        Ok(true)
    }
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
async fn a_message_that_another_process_has_redriven_is_not_counted() {
    let mut place = Place { elsewhere: "a", ..Place::of(&["a", "b"]) };
    assert_eq!(Redrive::new().limit(1).run(&mut place).await.put_back, 1);
    assert_eq!(place.queue, ["b"]);
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
