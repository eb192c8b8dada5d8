//! The insert-only inbox on servers with concurrent transactions.
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use futures_util::future::join;
use idempotent_sqlx::UniqueKeys;
use sqlx::{AssertSqlSafe, Connection as _};
use tokio::sync::Barrier;

use super::fixture::{Connection, Place, sql};
use crate::support::key;

struct World {
    place: Place,
    keys: UniqueKeys,
    table: String,
}

impl World {
    async fn new() -> Self {
        let place = Place::new();
        let table = format!("{}_seen", place.table);
        let keys = UniqueKeys::new(&table).unwrap();
        let world = Self { place, keys, table };
        for _ in 0..2 {
            world.keys.create(&mut world.connection().await).await.unwrap();
        }
        world
    }

    async fn connection(&self) -> Connection {
        Connection::connect(&self.place.url).await.unwrap()
    }

    async fn first_time(&self, part: &str) -> bool {
        self.keys.first_time(&mut self.connection().await, &key(part)).await.unwrap()
    }
}

#[tokio::test]
async fn a_key_is_noted_once_and_a_rollback_takes_the_note_with_it() {
    let world = World::new().await;
    let mut connection = world.connection().await;
    for (commits, first) in [(false, true), (true, true), (true, false)] {
        let mut tx = connection.begin().await.unwrap();
        assert_eq!(world.keys.first_time(&mut *tx, &key("a")).await.unwrap(), first);
        // It is no error: the transaction goes on.
        assert!(world.keys.first_time(&mut *tx, &key(&format!("beside {commits} {first}"))).await.unwrap());
        if commits { tx.commit().await.unwrap() } else { tx.rollback().await.unwrap() }
    }
    assert!(world.first_time("b").await, "another key");
}

#[tokio::test]
async fn a_second_transaction_waits_for_the_first_and_its_end_decides() {
    let world = World::new().await;
    for (commits, name) in [(true, "a"), (false, "b")] {
        let mut connection = world.connection().await;
        let mut tx = connection.begin().await.unwrap();
        assert!(world.keys.first_time(&mut *tx, &key(name)).await.unwrap());
        let waiting = tokio::spawn({
            let (keys, mut second) = (world.keys.clone(), world.connection().await);
            async move { keys.first_time(&mut second, &key(name)).await.unwrap() }
        });
        while !world.place.waits(&world.table) {
            assert!(!waiting.is_finished(), "it did not wait");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        if commits {
            tx.commit().await.unwrap()
        } else {
            tx.rollback().await.unwrap()
        }
        assert_eq!(waiting.await.unwrap(), !commits);
    }
}

#[tokio::test]
async fn keys_older_than_an_age_are_removed_a_few_at_a_time() {
    let world = World::new().await;
    for name in ["a", "b", "c", "new"] {
        assert!(world.first_time(name).await);
    }
    sql(&format!("UPDATE {0} SET noted_at = noted_at - 100 WHERE id <> {1}", world.table, hex("new")));
    let mut connection = world.connection().await;
    let mut purged = Vec::new();
    for (age, at_most) in [(100, 9), (99, 2), (99, 9)] {
        // Noted 100 s ago, and a moment: what is 100 s old is not older than that in the same second.
        let age = Duration::from_secs(age + if age == 100 { 60 } else { 0 });
        purged.push(world.keys.purge(&mut connection, age, at_most).await.unwrap());
    }
    assert_eq!(purged, [0, 2, 1]);
    assert!(world.first_time("a").await && !world.first_time("new").await);
    assert_eq!(world.keys.purge(&mut connection, Duration::MAX, 9).await.unwrap(), 0);
}

/// Returns bytes in the notation of both servers.
fn hex(part: &str) -> String {
    let hash = format!("{:032x}", key(part).hash());
    if super::fixture::SCHEME == "mysql" { format!("x'{hash}'") } else { format!("decode('{hash}','hex')") }
}

/// A wrong implementation: it reads the mark, runs, and writes the mark.
async fn looks_and_then_runs(world: &World, both_looked: &Barrier, effects: &AtomicU32) {
    let mut connection = world.connection().await;
    let look = format!("SELECT 1 FROM {} WHERE id = {}", world.table, hex("m-1"));
    let noted = sqlx::raw_sql(AssertSqlSafe(look)).fetch_optional(&mut connection).await.unwrap();
    both_looked.wait().await;
    if noted.is_none() {
        effects.fetch_add(1, SeqCst);
        world.keys.first_time(&mut connection, &key("m-1")).await.unwrap();
    }
}

/// The same two copies, where the note itself is the look.
async fn notes_and_then_runs(world: &World, both_here: &Barrier, effects: &AtomicU32) {
    let mut connection = world.connection().await;
    both_here.wait().await;
    let mut tx = connection.begin().await.unwrap();
    if world.keys.first_time(&mut *tx, &key("m-2")).await.unwrap() {
        effects.fetch_add(1, SeqCst);
    }
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn to_look_and_then_to_run_runs_twice_and_to_note_first_once() {
    let world = World::new().await;
    let (both, effects) = (Barrier::new(2), AtomicU32::new(0));
    let copy = || looks_and_then_runs(&world, &both, &effects);
    join(copy(), copy()).await;
    assert_eq!(effects.into_inner(), 2, "the race that nobody sees in a test without a barrier");
    let (both, effects) = (Barrier::new(2), AtomicU32::new(0));
    let copy = || notes_and_then_runs(&world, &both, &effects);
    join(copy(), copy()).await;
    assert_eq!(effects.into_inner(), 1);
}
