//! The checksums of all migrations. The text of a released migration never changes, because databases that have applied
//! the migration would be refused. A new migration gets a new line here.
use idempotent_sqlx::{DelayTable, MySqlStore, Outbox, PostgresStore, SchemaStep, SqliteStore};
use sqlx::{MySqlPool, PgPool, SqlitePool};

/// Returns each migration's name and the beginning of its checksum, as the last statement records it.
fn checksums(steps: &[SchemaStep]) -> Vec<String> {
    let checksum = |step: &SchemaStep| {
        let recorded = step.statements().last().unwrap().clone();
        let is_checksum = |word: &&str| word.len() == 64 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
        let found = recorded.split('\'').find(is_checksum).unwrap_or_else(|| panic!("{recorded}")).to_owned();
        format!("{} {}", step.name(), &found[..16])
    };
    steps.iter().map(checksum).collect()
}

#[tokio::test]
async fn the_text_of_a_released_migration_never_changes() {
    let sqlite = SqlitePool::connect_lazy("sqlite::memory:").unwrap();
    let postgres = PgPool::connect_lazy("postgres://localhost/none").unwrap();
    let mysql = MySqlPool::connect_lazy("mysql://localhost/none").unwrap();

    let records = SqliteStore::builder("sqlite::memory:").schema_steps().unwrap();
    let expected =
        ["record table 201e3f43dcddce3a", "steps of runs e1e97db48a31208e", "order tables of streams 3c35ef815ecb8903"];
    assert_eq!(checksums(&records), expected);
    let outbox = Outbox::builder(sqlite.clone()).schema_steps().unwrap();
    let expected = ["message stubs 68b684deae9e52d6", "message log cf446e0ed6d5dd14", "audit 3ab99c558afd8d37"];
    assert_eq!(checksums(&outbox), expected);
    let delay = DelayTable::builder(sqlite).schema_steps().unwrap();
    assert_eq!(checksums(&delay), ["delayed work ccb725faed65fc65"]);

    let records = PostgresStore::builder("postgres://localhost/none").schema_steps().unwrap();
    let expected =
        ["record table 4df1be95362d6ae6", "steps of runs ed88d9b51ccb3a0a", "order tables of streams f36e92a274c8d674"];
    assert_eq!(checksums(&records), expected);
    let outbox = Outbox::builder(postgres.clone()).schema_steps().unwrap();
    let expected = ["message stubs 9134b581e0cef882", "message log c3ebc105ed701bf3", "audit 65442a0e03e1c4bc"];
    assert_eq!(checksums(&outbox), expected);
    let delay = DelayTable::builder(postgres).schema_steps().unwrap();
    assert_eq!(checksums(&delay), ["delayed work eeb71a3700b7ee06"]);

    let records = MySqlStore::builder("mysql://localhost/none").schema_steps().unwrap();
    let expected =
        ["record table 566ade169c4bf57d", "steps of runs a62b6f39ddf36947", "order tables of streams 534691acbb887199"];
    assert_eq!(checksums(&records), expected);
    let outbox = Outbox::builder(mysql.clone()).schema_steps().unwrap();
    let expected = ["message stubs 7034c02d19af40e5", "message log a75dedf9391fb708", "audit fc1f5ee790ecd701"];
    assert_eq!(checksums(&outbox), expected);
    let delay = DelayTable::builder(mysql).schema_steps().unwrap();
    assert_eq!(checksums(&delay), ["delayed work f1a4b103a8a005f8"]);
}
