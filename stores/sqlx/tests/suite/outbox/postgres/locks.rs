//! Ends that are written together wait for no row while they hold others: a relay locks the same ones in another order.
use std::time::Duration;

use futures_util::future::join_all;
use idempotent_mq::{DeliveryResult, MessageLog};
use idempotent_sqlx::OutboxStatus;
use tokio::time::sleep;

use super::common::world::{World, message};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_message_is_waited_for_separately() {
    let world = World::new().await;
    let ids = ["first", "a", "locked", "z"];
    world.put(&ids.map(message)).await;
    let lock = format!("SELECT 1 FROM {} WHERE id = {} FOR UPDATE", world.table, world.bytes("locked"));
    let mut tx = world.begin().await;
    sqlx::raw_sql(sqlx::AssertSqlSafe(lock)).execute(&mut *tx).await.unwrap();
    let outbox = world.outbox.clone();
    let receipts = world.receipts(&ids).await;
    let ending = tokio::spawn(async move {
        join_all(receipts.iter().map(|receipt| outbox.concluded(receipt, DeliveryResult::Done))).await
    });
    let others = async {
        for id in ["first", "a", "z"] {
            while world.status(id).await != OutboxStatus::Confirmed {
                sleep(Duration::from_millis(5)).await;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), others).await.expect("the others are confirmed meanwhile");
    assert_eq!((world.status("locked").await, ending.is_finished()), (OutboxStatus::Unconfirmed, false));
    tx.commit().await.unwrap();
    assert!(ending.await.unwrap().iter().all(Result::is_ok));
    assert_eq!(world.status("locked").await, OutboxStatus::Confirmed);
}
