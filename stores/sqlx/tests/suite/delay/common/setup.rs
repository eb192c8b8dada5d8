//! Its table.
use std::time::Duration;

use idempotent_core::StoreErrorKind;
use idempotent_sqlx::{DelayTable, ScheduledTask};

use super::backend;
use super::world::{Hand, World};
use crate::schema_status::follows_the_database;
use crate::tables::{is_made_on_request_only, open_on_printed_migrations, refuses_bad_names};

#[tokio::test]
async fn no_table_is_made_unasked_and_what_is_missing_is_said() {
    let (pool, table, _kept) = backend::fixture("delay").await;
    let builder = || DelayTable::builder(pool.clone()).table(&table);
    is_made_on_request_only(async |create| builder().create(create).open().await).await;
}

#[tokio::test]
async fn tables_can_be_created_by_an_administrator() {
    let (pool, table, _kept) = backend::fixture("delay").await;
    let builder = || DelayTable::builder(pool.clone()).table(&table);
    let steps = builder().schema_steps().unwrap();
    let execute = async |sql| {
        sqlx::raw_sql(sqlx::AssertSqlSafe::<String>(sql)).execute(&pool).await.unwrap();
    };
    open_on_printed_migrations(&steps, execute, async |create| builder().create(create).open().await).await;
}

#[tokio::test]
async fn the_status_of_the_schema_follows_the_tables() {
    let (pool, table, _kept) = backend::fixture("delay").await;
    let builder = || DelayTable::builder(pool.clone()).table(&table);
    let steps = builder().schema_steps().unwrap();
    let execute = async |sql| {
        sqlx::raw_sql(sqlx::AssertSqlSafe::<String>(sql)).execute(&pool).await.unwrap();
    };
    let status = async || builder().schema_status().await;
    follows_the_database(&table, &steps, execute, status, async || builder().open().await.unwrap_err()).await;
}

#[tokio::test]
async fn an_invalid_name_or_setting_and_a_foreign_table_are_refused() {
    let (pool, table, _kept) = backend::fixture("delay").await;
    refuses_bad_names(async |name| DelayTable::builder(pool.clone()).table(name).create(true).open().await).await;
    let builder = || DelayTable::builder(pool.clone()).table(&table).create(true);
    for (set, words) in [
        (builder().visibility(Duration::ZERO), "visibility is 0ns: out of range; choose 1 ms to 7 days"),
        (builder().visibility(Duration::from_secs(8 * 86_400)), "choose 1 ms to 7 days"),
        (builder().poll(Duration::ZERO), "poll is 0ns: out of range; choose 2 ms to 1 h"),
        (builder().poll(Duration::from_secs(3_601)), "out of range; choose 2 ms to 1 h"),
    ] {
        let refused = set.open().await.unwrap_err();
        assert!(refused.to_string().contains(words), "{refused}");
    }
    sqlx::raw_sql(sqlx::AssertSqlSafe(format!("CREATE TABLE {table} (a int)"))).execute(&pool).await.unwrap();
    let refused = builder().open().await.unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Foreign, "{refused}");
}

#[tokio::test]
async fn nothing_shows_what_is_scheduled() {
    let world = World::new().await;
    let work = ScheduledTask::after("secret-17", Duration::ZERO, "secret body").header("secret", "secret");
    world.work.put(&work).await.unwrap();
    let held = Hand::of(&world).take(9).await.remove(0);
    let shown = format!("{work:?} {:?} {held:?} {:?}", world.work, world.work.source());
    assert!(!shown.contains("secret"), "{shown}");
}
