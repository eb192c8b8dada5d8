//! Tests of the statements that differ between the databases.
use super::*;
use crate::outbox::database::SqlDialect;
use crate::table::Table;

fn statements(kind: SqlDialect) -> OutboxStatements {
    OutboxStatements::new(kind, &Table::new("outbox").unwrap(), None)
}

fn has(text: &str, part: &str) -> bool {
    text.contains(part)
}

#[test]
fn each_database_has_its_own_forms() {
    for kind in [SqlDialect::MySql, SqlDialect::Postgres, SqlDialect::Sqlite] {
        let (statements, is_mysql) = (statements(kind), kind == SqlDialect::MySql);
        assert_eq!(has(&statements.enqueue(1), "INSERT IGNORE"), is_mysql);
        assert_eq!(has(&statements.enqueue(1), "ON CONFLICT (id) DO NOTHING"), !is_mysql);
        assert_eq!(has(&statements.record(1), "t.lease_until=0"), is_mysql);
        assert_eq!(has(&statements.log(1), "ON DUPLICATE KEY UPDATE"), is_mysql);
        assert_eq!(has(&statements.log(1), "CASE WHEN l.place>"), !is_mysql);
        assert_eq!(has(&statements.log(1), " AS l (kind"), !is_mysql);
        assert_eq!(has(&statements.purge(), "IN (SELECT seq"), !is_mysql);
        assert_eq!((statements.take_answers(), statements.rows_before_times()), (!is_mysql, is_mysql));
        assert_eq!(statements.all().iter().any(|(name, _)| *name == "taken"), is_mysql);
    }
}

#[test]
fn only_postgres_numbers_its_placeholders() {
    for (kind, part) in
        [(SqlDialect::MySql, "lease_by=?"), (SqlDialect::Sqlite, "lease_by=?"), (SqlDialect::Postgres, "lease_by=$4")]
    {
        let taken = statements(kind).taken(2);
        assert!(taken.starts_with("SELECT ") && taken.ends_with(part), "{taken}");
    }
}

#[test]
fn log_rows_are_selected_for_the_kinds_that_are_asked_for() {
    let statements = statements(SqlDialect::Sqlite);
    for (ids, queues, selects) in [(1, 0, 1), (0, 2, 1), (1, 1, 2)] {
        assert_eq!(statements.seen(ids, queues).matches("SELECT ").count(), selects, "{ids} {queues}");
    }
}
