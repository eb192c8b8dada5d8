//! Messages that a handler deletes or sends in its transaction.
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use idempotent_core::{Call, Executor, Identity, Outcome, Rejection, Scene, StoreErrorKind};
use idempotent_mq::{Delivery, OutboundMessage, Settlement, Source, SourceError, SourceErrorKind};
use idempotent_pgmq::{PgmqMessage, PgmqPublisher};
use idempotent_sqlx::{Inbox, InboxTransaction, PostgresStore};
use sqlx::{AssertSqlSafe, Postgres};

use crate::world::{LIMIT, World, one, settle, until};

/// The environment variable with the URL, in a process that commits and does not acknowledge.
const COMMITTER: &str = "IDEMPOTENT_PGMQ_COMMITTER";

#[derive(Debug)]
#[expect(dead_code, reason = "shown when a test fails")]
enum Failure {
    Run(Rejection),
    Sql(sqlx::Error),
    Queue(SourceError),
    Own(&'static str),
}

impl From<Rejection> for Failure {
    fn from(rejection: Rejection) -> Self {
        Self::Run(rejection)
    }
}

/// Returns an inbox in the database of the queue, and creates the table of the effects.
async fn inbox(url: &str) -> Inbox<Postgres> {
    let url = url.replacen("pgmq://", "postgres://", 1);
    let store = PostgresStore::builder(url).create(true).connect().await.unwrap();
    Inbox::new(&Executor::new(store))
}

async fn effects(world: &World) -> i64 {
    world.number("SELECT count(*) FROM effects").await
}

/// Writes an effect, and deletes the message, in one transaction.
async fn handle(
    inbox: &Inbox<Postgres>,
    delivery: &Delivery,
    end: Result<(), Failure>,
) -> (Result<(), Failure>, Option<Outcome>) {
    handle_with(inbox, delivery, ["", ""], end).await
}

/// Does as [`handle`] does, and sends statements before and after the deletion.
async fn handle_with(
    inbox: &Inbox<Postgres>,
    delivery: &Delivery,
    [before, after]: [&str; 2],
    end: Result<(), Failure>,
) -> (Result<(), Failure>, Option<Outcome>) {
    let send = |statement: &str| sqlx::raw_sql(AssertSqlSafe(statement.to_owned()));
    let call = Call::new(Identity::new(Scene::Mq, "orders", &delivery.id));
    let run = inbox.run(call, async |mut tx: InboxTransaction<Postgres>| {
        sqlx::query("INSERT INTO effects VALUES (1)").execute(&mut **tx).await.map_err(Failure::Sql)?;
        send(before).execute(&mut **tx).await.map_err(Failure::Sql)?;
        PgmqMessage::of(delivery).map_err(Failure::Queue)?.delete_in(&mut tx).await.map_err(Failure::Queue)?;
        send(after).execute(&mut **tx).await.map_err(Failure::Sql)?;
        end
    });
    Outcome::capture(run).await
}

#[tokio::test]
async fn effect_record_and_deletion_commit_together_or_not_at_all() {
    let world = World::new().await;
    let inbox = inbox(&world.url()).await;
    world.execute("CREATE TABLE effects (n int)").await;
    let mut source = world.source().await;
    let settler = source.settler();
    world.send("17").await;
    let held = one(&mut source).await;
    handle(&inbox, &held.0, Err(Failure::Own("no stock"))).await.0.unwrap_err();
    assert_eq!((effects(&world).await, world.open().await), (0, 1), "all is rolled back");
    let (answer, outcome) = handle(&inbox, &held.0, Ok(())).await;
    answer.unwrap();
    assert_eq!(outcome, Some(Outcome::Ran));
    assert_eq!((effects(&world).await, world.open().await), (1, 0));
    settle(&settler, &held, Settlement::Ack).await;
}

/// The handler writes its effect, sends the first statement, deletes its message, and sends the second statement.
#[tokio::test]
async fn a_handler_that_ends_its_transaction_loses_its_message_only_by_a_commit_after_the_deletion() {
    let world = World::new().await;
    let inbox = inbox(&world.url()).await;
    world.execute("CREATE TABLE effects (n int)").await;
    let mut source = world.builder().visibility_timeout(LIMIT).connect().await.unwrap();
    let settler = source.settler();
    for (statements, refused, left) in [
        (["COMMIT", ""], true, (1, 1)),
        (["ROLLBACK", ""], true, (0, 1)),
        (["COMMIT AND CHAIN", ""], false, (1, 1)),
        (["ROLLBACK AND CHAIN", ""], false, (0, 1)),
        (["", "ROLLBACK"], false, (0, 1)),
        // As the documentation of `delete_in` says.
        (["", "COMMIT"], false, (1, 0)),
    ] {
        world.send("17").await;
        let held = one(&mut source).await;
        let (answer, outcome) = handle_with(&inbox, &held.0, statements, Ok(())).await;
        assert!(matches!(outcome, Some(Outcome::Released { .. })), "{statements:?}: {outcome:?}");
        assert_eq!((effects(&world).await, world.open().await), left, "{statements:?}");
        match answer.unwrap_err() {
            Failure::Queue(error) if refused => {
                assert_eq!(error.kind(), SourceErrorKind::Fatal, "{statements:?}: {error}");
                assert!(error.to_string().contains("no open transaction"), "{statements:?}: {error}");
            }
            Failure::Run(Rejection::RolledBack { cause: Some(cause), .. }) if !refused => {
                assert_eq!(cause.kind(), StoreErrorKind::TransactionEnded, "{statements:?}: {cause}");
            }
            error => panic!("{statements:?}: {error:?}"),
        }
        if left.1 == 1 {
            let (answer, outcome) = handle(&inbox, &held.0, Ok(())).await;
            answer.unwrap();
            assert_eq!(outcome, Some(Outcome::Ran), "{statements:?}");
            assert_eq!((effects(&world).await, world.open().await), (left.0 + 1, 0), "{statements:?}");
        }
        settle(&settler, &held, Settlement::Ack).await;
        world.execute("TRUNCATE effects").await;
    }
}

#[tokio::test]
async fn a_handler_whose_hold_is_over_rolls_back() {
    let world = World::new().await;
    let inbox = inbox(&world.url()).await;
    world.execute("CREATE TABLE effects (n int)").await;
    let (mut late, mut other) = (world.source().await, world.source().await);
    world.send("17").await;
    let lost = one(&mut late).await;
    let held = one(&mut other).await;
    let error = handle(&inbox, &lost.0, Ok(())).await.0.unwrap_err();
    assert!(matches!(&error, Failure::Queue(gone) if gone.kind() == SourceErrorKind::Gone), "{error:?}");
    assert_eq!((effects(&world).await, world.open().await), (0, 1));
    handle(&inbox, &held.0, Ok(())).await.0.unwrap();
    assert_eq!((effects(&world).await, world.open().await), (1, 0));
}

/// Not a test: a process that commits its transaction, and never acknowledges.
#[tokio::test]
async fn committer_process() {
    let Ok(url) = std::env::var(COMMITTER) else { return };
    let inbox = inbox(&url).await;
    let mut source = World::builder_at(url).connect().await.unwrap();
    let held = one(&mut source).await;
    handle(&inbox, &held.0, Ok(())).await.0.unwrap();
    println!("\ncommitted");
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn a_process_that_is_killed_between_commit_and_acknowledgement_causes_no_redelivery() {
    let world = World::new().await;
    world.execute("CREATE TABLE effects (n int)").await;
    let mut source = world.source().await;
    world.send("17").await;
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "transactions::committer_process", "--nocapture"]).env(COMMITTER, world.url());
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let has_committed =
        tokio::task::spawn_blocking(move || lines.any(|line| line.unwrap() == "committed")).await.unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(has_committed, "the process has ended before its commit");
    assert_eq!((effects(&world).await, world.open().await), (1, 0), "no message is left that could be delivered");
    // The next message is the next delivery.
    world.send("18").await;
    assert_eq!(one(&mut source).await.0.body, b"18");
}

#[tokio::test]
async fn an_open_transaction_that_has_deleted_its_message_does_not_stop_the_keep_alive_of_others() {
    let world = World::new().await;
    let mut source = world.source().await;
    let settler = source.settler();
    for body in ["1", "2"] {
        world.send(body).await;
    }
    let (deleted, waiting) = (one(&mut source).await, one(&mut source).await);
    let hidden = "SELECT (extract(epoch FROM vt) * 1000000)::bigint FROM pgmq.q_orders WHERE message = '2'";
    let before = world.number(hidden).await;
    let mut transaction = world.client.begin().await.unwrap();
    PgmqMessage::of(&deleted.0).unwrap().delete_in(&mut transaction).await.unwrap();
    settler.keep_alive(&[&deleted.1, &waiting.1]).await.unwrap();
    assert!(world.number(hidden).await > before);
    // No other consumer reads the deleted message, although its visibility timeout ends.
    let mut other = world.source().await;
    assert_eq!(one(&mut other).await.0.body, b"2");
    transaction.rollback().await.unwrap();
    assert_eq!(one(&mut other).await.0.body, b"1");
}

#[tokio::test]
async fn a_deletion_counts_deliveries_as_the_source_does() {
    let world = World::new().await;
    let mut source = world.source().await;
    let settler = source.settler();
    world.send("17").await;
    let held = one(&mut source).await;
    settle(&settler, &held, Settlement::GiveBack).await;
    drop(one(&mut source).await);
    let (delivery, _) = one(&mut source).await;
    let mut transaction = world.client.begin().await.unwrap();
    PgmqMessage::of(&delivery).unwrap().archive_in(&mut transaction).await.unwrap();
    assert_eq!(world.open().await, 1, "before the commit");
    transaction.commit().await.unwrap();
    assert_eq!((world.open().await, world.number("SELECT count(*) FROM pgmq.a_orders").await), (0, 1));
}

#[tokio::test]
async fn a_delivery_of_another_source_is_refused() {
    let foreign = Delivery::new(idempotent_mq::Position::of("orders").offset("7-0"), Vec::new());
    let error = PgmqMessage::of(&foreign).map(drop).unwrap_err();
    assert!(error.kind() == SourceErrorKind::Fatal && error.to_string().contains("`PgmqSource`"), "{error}");
}

#[tokio::test]
async fn a_message_that_is_sent_in_a_transaction_exists_with_its_commit() {
    let world = World::new().await;
    let mut source = world.source().await;
    let publisher = PgmqPublisher::new(world.url());
    for (id, commits) in [("rolled back", false), ("committed", true)] {
        let mut transaction = world.client.begin().await.unwrap();
        let message = OutboundMessage::new("orders", id, "{}");
        publisher.send_in(&mut transaction, &message).await.unwrap();
        assert_eq!(world.open().await, 0, "before the commit");
        if commits {
            transaction.commit().await.unwrap();
        } else {
            transaction.rollback().await.unwrap();
        }
    }
    assert_eq!(one(&mut source).await.0.id.as_deref(), Some("committed"));
    until("there is one message", async || world.open().await == 1).await;
}
