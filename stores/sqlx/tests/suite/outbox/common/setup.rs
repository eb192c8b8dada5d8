//! Its tables.
use idempotent_core::StoreErrorKind;
use idempotent_sqlx::Outbox;

use super::backend;
use super::world::{World, message};
use crate::schema_status::follows_the_database;
use crate::tables::{is_made_on_request_only, open_on_printed_migrations, refuses_bad_names};

#[tokio::test]
async fn no_table_is_made_unasked_and_what_is_missing_is_said() {
    let (pool, table, _kept) = backend::fixture("outbox").await;
    let builder = || Outbox::builder(pool.clone()).table(&table);
    is_made_on_request_only(async |create| builder().create(create).open().await).await;
}

#[tokio::test]
async fn tables_can_be_created_by_an_administrator() {
    let (pool, table, _kept) = backend::fixture("outbox").await;
    let builder = || Outbox::builder(pool.clone()).table(&table);
    let steps = builder().schema_steps().unwrap();
    let execute = async |sql| {
        sqlx::raw_sql(sqlx::AssertSqlSafe::<String>(sql)).execute(&pool).await.unwrap();
    };
    open_on_printed_migrations(&steps, execute, async |create| builder().create(create).open().await).await;
}

#[tokio::test]
async fn the_status_of_the_schema_follows_the_tables() {
    let (pool, table, _kept) = backend::fixture("outbox").await;
    let builder = || Outbox::builder(pool.clone()).table(&table);
    let steps = builder().schema_steps().unwrap();
    let execute = async |sql| {
        sqlx::raw_sql(sqlx::AssertSqlSafe::<String>(sql)).execute(&pool).await.unwrap();
    };
    let status = async || builder().schema_status().await;
    follows_the_database(&table, &steps, execute, status, async || builder().open().await.unwrap_err()).await;
}

#[tokio::test]
async fn an_invalid_name_and_a_foreign_table_are_refused() {
    let (pool, table, _kept) = backend::fixture("outbox").await;
    refuses_bad_names(async |name| Outbox::builder(pool.clone()).table(name).create(true).open().await).await;
    sqlx::raw_sql(sqlx::AssertSqlSafe(format!("CREATE TABLE {table} (a int)"))).execute(&pool).await.unwrap();
    let refused = Outbox::builder(pool).table(&table).create(true).open().await.unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Foreign, "{refused}");
}

#[tokio::test]
async fn neither_an_outbox_nor_a_stub_shows_what_is_in_a_message() {
    let world = World::new().await;
    world.put(&[message("secret-17")]).await;
    let listed = world.outbox.list(idempotent_sqlx::OutboxStatus::Unconfirmed, 0, 9).await.unwrap();
    assert_eq!(listed[0].id, "secret-17");
    let shown = format!("{listed:?} {:?} {:?} {:?}", world.outbox, world.relay(), world.stub("secret-17").await);
    assert!(!shown.contains("secret") && !shown.contains("body of"), "{shown}");
}
