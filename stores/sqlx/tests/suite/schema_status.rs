//! The status of a schema: what the database has, and what this version knows.
use idempotent_core::{StoreError, StoreErrorKind};
use idempotent_sqlx::{SchemaProblemKind, SchemaStatus, SchemaStep};

use crate::support::Place;

/// Follows the status of a table through its migrations and through each problem. `open` opens without migrating.
pub(crate) async fn follows_the_database(
    table: &str,
    steps: &[SchemaStep],
    execute: impl AsyncFn(String),
    status: impl AsyncFn() -> Result<SchemaStatus, StoreError>,
    open: impl AsyncFn() -> StoreError,
) {
    let known = u32::try_from(steps.len()).unwrap();
    let status = async || status().await.unwrap();
    for (index, step) in steps.iter().enumerate() {
        let before = status().await;
        assert_eq!((before.table.as_str(), before.found, before.known), (table, step.version() - 1, known));
        assert_eq!((&before.pending[..], &before.problem), (&steps[index..], &None));
        assert!(!before.is_current());
        execute(step.to_string()).await;
    }
    let current = status().await;
    assert!(current.is_current() && current.found == known, "{current:?}");

    let problem = async |text: &str, kind: SchemaProblemKind, found: u32, words: &[&str]| {
        execute(text.replace("TABLE_NAME", table).replace("NEXT", &(known + 1).to_string())).await;
        let status = status().await;
        assert_eq!((status.found, status.known, status.is_current()), (found, known, false), "{text}");
        assert!(status.pending.is_empty(), "{status:?}");
        let problem = status.problem.unwrap();
        assert_eq!(problem.kind(), kind, "{problem}");
        let (refused, converted) = (open().await, StoreError::from(problem));
        assert!(words.iter().all(|word| refused.to_string().contains(word)), "{words:?} are not in: {refused}");
        assert_eq!(refused.to_string(), converted.to_string());
        assert_eq!(converted.kind() == StoreErrorKind::Foreign, kind == SchemaProblemKind::ForeignTable);
    };
    let newer = "INSERT INTO TABLE_NAME_migrations SELECT NEXT, checksum, applied_at FROM TABLE_NAME_migrations \
                 WHERE version = 1";
    let numbers = [&*format!("schema version {}", known + 1), &format!("supported is {known}")];
    problem(newer, SchemaProblemKind::NewerVersion, known + 1, &numbers).await;
    // The newest version becomes one that follows a gap.
    let gap = "DELETE FROM TABLE_NAME_migrations WHERE version = NEXT; \
               UPDATE TABLE_NAME_migrations SET version = version + 100 WHERE version = 1";
    let first = format!("migration 1 `{}`", steps[0].name());
    problem(gap, SchemaProblemKind::MissingMigration, 101, &[&first, "restore the row"]).await;
    let edited = "UPDATE TABLE_NAME_migrations SET version = 1 WHERE version = 101; \
                  UPDATE TABLE_NAME_migrations SET checksum = substr(checksum, 1, 3) WHERE version = 1";
    problem(edited, SchemaProblemKind::EditedMigration, known, &[&first, table, "another text"]).await;
    problem("DROP TABLE TABLE_NAME", SchemaProblemKind::DroppedTable, 0, &["_migrations", "drop that one too"]).await;
    let foreign = "DROP TABLE TABLE_NAME_migrations; CREATE TABLE TABLE_NAME (a int)";
    problem(foreign, SchemaProblemKind::ForeignTable, 0, &[table, "a different layout"]).await;
}

#[tokio::test]
async fn the_status_of_a_file_follows_its_tables() {
    let place = Place::new();
    place.sql("CREATE TABLE other (a)").await;
    let builder = || place.builder().create(false);
    follows_the_database(
        "idempotent_record",
        &builder().schema_steps().unwrap(),
        async |text| place.sql(&text).await,
        async || builder().schema_status().await,
        async || builder().open().await.unwrap_err(),
    )
    .await;
}

#[tokio::test]
async fn a_table_without_a_column_is_foreign() {
    let place = Place::new();
    place.open().await;
    place.sql("ALTER TABLE idempotent_record DROP COLUMN taken_over").await;
    let status = place.builder().schema_status().await.unwrap();
    assert_eq!((status.found, status.known), (3, 3));
    assert_eq!(status.problem.unwrap().kind(), SchemaProblemKind::ForeignTable);
}

#[tokio::test]
async fn the_status_of_a_missing_file_is_an_error_and_no_file_appears() {
    let place = Place::new();
    let error = place.builder().schema_status().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Schema);
    assert!(error.to_string().contains("records.db` is missing: check the path"), "{error}");
    assert_eq!(std::fs::read_dir(place.folder.path()).unwrap().count(), 0);
}
