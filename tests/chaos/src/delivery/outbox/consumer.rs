//! Annotated handlers whose effect and record are one transaction, with the outbox as their consumer's log.
use std::sync::Arc;
use std::time::Duration;

use idempotent::delay_queue::DelaySource;
use idempotent::mq::{Consumer, Message, Messages, Schedule, Verdict};
use idempotent::{Executor, Policy, Rejection, Scene, idempotent};
use sqlx::{PgPool, Postgres, Transaction};
use tokio::time::sleep;

use super::{Body, Note, queue, stores};
use crate::delivery::DeliveryFlaw;
use crate::delivery::hands::{Hands, Point, Stop, stopped};

const GRACE: Duration = Duration::from_secs(5);
const LEASE: Duration = Duration::from_secs(1);
/// Of what always fails; what is killed counts, too.
const RETRIES: u32 = 12;

#[derive(Debug)]
struct Failed;

impl From<Rejection> for Failed {
    fn from(_: Rejection) -> Self {
        Self
    }
}

impl From<sqlx::Error> for Failed {
    fn from(_: sqlx::Error) -> Self {
        Self
    }
}

const EFFECT: &str = "INSERT INTO effects (id) VALUES ($1)";

#[idempotent(key = id, scope = "outbox", transaction = leased(tx))]
async fn book(hands: &Hands, id: &str, poison: bool, tx: &mut Transaction<'_, Postgres>) -> Result<(), Failed> {
    hands.may_die(Point::BeforeEffect);
    sqlx::query(EFFECT).bind(id).execute(&mut **tx).await?;
    hands.may_die(Point::InTransaction);
    // Rolled back.
    if poison { Err(Failed) } else { Ok(()) }
}

/// Consumes until it is told to end.
pub(in crate::delivery) async fn consume(hands: &Arc<Hands>, stop: Stop) -> anyhow::Result<()> {
    let (pool, outbox, store) = stores(&hands.start.database).await?;
    let queue = queue(&hands.start.broker).await;
    let policy = Policy::new().max_retries(RETRIES).lease(LEASE);
    let policy = policy.retry_delay(Duration::from_millis(10)).retry_delay_max(Duration::from_millis(60));
    let policy = policy.in_flight_delay(Duration::from_millis(50)).in_flight_delay_max(Duration::from_millis(200));
    let executor = Executor::builder(store).policy(Scene::Mq, policy).build()?;
    let own = hands.clone();
    let handling = Messages::<Body>::json().annotated(move |message| handle(own.clone(), pool.clone(), message));
    let consumer = Consumer::builder(DelaySource::new(&queue), "outbox", &executor)
        .concurrency(4)
        .grace(GRACE)
        .schedule(Schedule::exponential(Duration::from_millis(10), Duration::from_millis(60)))
        .log(Arc::new(outbox))
        .build(handling)?;
    consumer.run(stopped(stop)).await?;
    Ok(())
}

async fn handle(hands: Arc<Hands>, pool: PgPool, message: Message<Body>) -> Verdict {
    let again = || Verdict::Again { after: None, error: "it fails".into() };
    let delivery = &message.delivery;
    let (Some(id), Some(member)) = (delivery.id.clone(), delivery.position.offset.clone()) else { return again() };
    hands.notes.write(&Note::Began { id: id.clone(), member: member.into() });
    let poison = message.body.poison;
    match hands.start.flaw {
        Some(DeliveryFlaw::Unbound) if !poison => {
            // Neither its key nor its transaction.
            let put = sqlx::query(EFFECT).bind(&id).execute(&pool).await;
            hands.may_die(Point::BeforeSettling);
            return if put.is_ok() { Verdict::Done } else { again() };
        }
        Some(DeliveryFlaw::AnswersFirst) if !poison => {
            tokio::spawn(async move {
                sleep(Duration::from_millis(100)).await;
                let _ = book(&hands, &id, poison).await;
            });
            return Verdict::Done;
        }
        _ => {}
    }
    let answer = book(&hands, &id, poison).await;
    hands.may_die(Point::BeforeSettling);
    if answer.is_ok() { Verdict::Done } else { again() }
}
