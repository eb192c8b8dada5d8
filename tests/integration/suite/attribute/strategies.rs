//! Key strategies of the application: `by = strategy`.
use super::*;
use idempotent::key::{DerivedKey, Fingerprint, KeyStrategy};

#[derive(Clone)]
struct Event {
    id: String,
    body: String,
}

fn event(body: &str) -> Event {
    Event { id: "e-1".into(), body: body.into() }
}

/// Retains events for an hour as messages and for a minute otherwise.
#[derive(Clone, Copy)]
struct ById;

impl KeyStrategy<Event> for ById {
    fn derive(&self, scene: &Scene, event: &Event) -> DerivedKey {
        let retain = if *scene == Scene::Mq { secs(3600) } else { secs(60) };
        DerivedKey::new(&event.id).fingerprint(Fingerprint::of(&event.body)).policy(Policy::new().retain(retain))
    }
}

/// The same strategy for another type of source: a tuple of an argument and a reference to an event.
impl KeyStrategy<(&u8, &Event)> for ById {
    fn derive(&self, _: &Scene, (shop, event): &(&u8, &Event)) -> DerivedKey {
        DerivedKey::new(&(shop, &event.id))
    }
}

#[idempotent(by = ById, key = event, with = e)]
async fn message(e: &Executor, event: Event) -> Result<u32, AppError> {
    Ok(ran())
}

#[idempotent(by = ById, key = event, with = e, scene = rest, on_in_flight = wait("1s"))]
async fn request(e: &Executor, event: &Event) -> Result<u32, AppError> {
    Ok(ran())
}

fn worker(policy: Policy) -> (World, Worker) {
    let world = World::memory();
    let worker = world.worker("a", policy);
    (world, worker)
}

#[tokio::test]
async fn a_strategy_derives_the_key_and_the_fingerprint() {
    let (_, worker) = worker(Policy::new());
    let e = &worker.executor;
    assert_eq!(message(e, event("a")).await.unwrap(), 1);
    assert_eq!(message(e, event("a")).await.unwrap(), 1);
    let Err(AppError::Idempotent(Rejection::Mismatch)) = message(e, event("b")).await else { panic!("not compared") };
    let other = Event { id: "e-2".into(), ..event("b") };
    assert_eq!(message(e, other).await.unwrap(), 2);
    assert_runs(2);
}

#[tokio::test]
async fn a_strategy_sets_the_policy_of_each_scene() {
    // The executor's setting has a lower rank than the strategy's.
    let (world, worker) = worker(Policy::new().retain(secs(7200)));
    let e = &worker.executor;
    assert_eq!((message(e, event("a")).await.unwrap(), request(e, &event("a")).await.unwrap()), (1, 2));
    world.clock.advance(secs(61)).await;
    assert_eq!((message(e, event("a")).await.unwrap(), request(e, &event("a")).await.unwrap()), (1, 3));
    world.clock.advance(secs(3600)).await;
    assert_eq!(message(e, event("a")).await.unwrap(), 4);
}

#[tokio::test]
async fn arguments_of_the_attribute_override_the_strategy() {
    #[idempotent(by = ById, key = event, with = e, retain = "2h", fingerprint = event.id)]
    async fn own(e: &Executor, event: Event) -> Result<u32, AppError> {
        Ok(ran())
    }
    let (world, worker) = worker(Policy::new());
    let e = &worker.executor;
    assert_eq!(own(e, event("a")).await.unwrap(), 1);
    world.clock.advance(secs(3601)).await;
    assert_eq!(own(e, event("b")).await.unwrap(), 1);
    world.clock.advance(secs(3600)).await;
    assert_eq!(own(e, event("b")).await.unwrap(), 2);
}

#[tokio::test]
async fn a_strategy_may_be_a_field_and_serve_several_sources() {
    struct Shop {
        number: u8,
        idem: Executor,
        strategy: ById,
    }
    impl Shop {
        #[idempotent(by = self.strategy, key = (self.number, event), with = self.idem)]
        async fn receive(&self, event: Event) -> Result<u32, AppError> {
            Ok(ran())
        }
    }
    let (_, worker) = worker(Policy::new());
    let shop = |number| Shop { number, idem: worker.executor.clone(), strategy: ById };
    assert_eq!(shop(1).receive(event("a")).await.unwrap(), 1);
    assert_eq!(shop(2).receive(event("a")).await.unwrap(), 2);
    assert_eq!(shop(1).receive(event("b")).await.unwrap(), 1);
    assert_runs(2);
}

#[tokio::test]
async fn a_derived_key_names_the_record_of_the_same_identity() {
    let (_, worker) = worker(Policy::new());
    let e = &worker.executor;
    #[idempotent(by = ById, key = event, with = e, scope = "events", tenant = "t", after = previous)]
    async fn chained(e: &Executor, event: Event, previous: Option<&str>) -> Result<u32, AppError> {
        Ok(ran())
    }
    assert_eq!(chained(e, event("a"), None).await.unwrap(), 1);
    let key = Identity::new(Scene::Mq, "events", "e-1").tenant("t").key(e.namespace()).unwrap();
    assert_eq!(e.store().peek(&key).await.unwrap().unwrap().state.kind(), StateKind::Consumed);
    // A later call may name the derived key as its predecessor.
    let next = Event { id: "e-2".into(), ..event("a") };
    assert_eq!(chained(e, next, Some("e-1")).await.unwrap(), 2);
}

#[tokio::test]
async fn an_empty_derived_key_runs_nothing() {
    let (_, worker) = worker(Policy::new());
    let unnamed = Event { id: String::new(), ..event("a") };
    let Err(AppError::Idempotent(Rejection::Key(error))) = message(&worker.executor, unnamed).await else {
        panic!("ran without a key")
    };
    assert!(error.to_string().contains("`event`"), "{error}");
    assert_runs(0);
}
