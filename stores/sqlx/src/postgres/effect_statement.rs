//! Statements that are the whole effect of a run.
use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use sqlx::{Arguments, AssertSqlSafe, Execute, Postgres, SqlStr};

/// A statement of the caller that is the whole effect of a run.
#[derive(Clone)]
pub(crate) struct EffectStatement {
    pub(super) sql: SqlStr,
    pub(super) arguments: PgArguments,
}

/// A statement without its values, which may be payload.
impl std::fmt::Debug for EffectStatement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EffectStatement").field("sql", &self.sql.as_str()).finish_non_exhaustive()
    }
}

impl EffectStatement {
    /// Checks the statement.
    ///
    /// # Errors
    /// A value cannot be encoded, or the statement cannot be a part of a longer one.
    pub(super) fn new<'q>(mut statement: impl Execute<'q, Postgres>) -> Result<Self, sqlx::Error> {
        let arguments = statement.take_arguments().map_err(sqlx::Error::Encode)?.unwrap_or_default();
        let sql = statement.sql();
        match unsuitable(sql.as_str()) {
            None => Ok(Self { sql, arguments }),
            Some(why) => Err(sqlx::Error::Configuration(
                format!(
                    "`Inbox::execute` takes one INSERT, UPDATE or DELETE that reads from `claimed`, for example \
                     `INSERT INTO paid SELECT $1 FROM claimed`, but the statement {why}"
                )
                .into(),
            )),
        }
    }

    /// Returns the statement for a transaction that has claimed the key.
    pub(super) fn after_the_claim(self, fencing: i64) -> Query<'static, Postgres, PgArguments> {
        let place = self.arguments.len() + 1;
        let sql = format!("WITH claimed AS MATERIALIZED (SELECT ${place}::bigint AS fencing)\n{}", self.sql.as_str());
        sqlx::query_with(AssertSqlSafe(sql), self.arguments).bind(fencing)
    }
}

/// Returns why the statement cannot be a part of a longer one.
fn unsuitable(sql: &str) -> Option<&'static str> {
    let words: Vec<_> = sql
        .split(|letter: char| !letter.is_alphanumeric() && letter != '_')
        .filter(|word| !word.is_empty())
        .map(str::to_ascii_lowercase)
        .collect();
    let has = |wanted| words.iter().any(|word| word == wanted);
    match words.first().map(String::as_str) {
        Some("insert" | "update" | "delete") if has("returning") => Some("has a RETURNING clause"),
        Some("insert" | "update" | "delete") if sql.contains(';') => Some("contains a semicolon: bind texts as values"),
        Some("insert" | "update" | "delete") if !has("claimed") => Some("does not read from `claimed`"),
        Some("insert" | "update" | "delete") => None,
        _ => Some("begins with another word"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_changing_statement_that_reads_the_claim_is_suitable() {
        for sql in [
            "INSERT INTO paid SELECT $1 FROM claimed",
            "  update account SET balance = 1 FROM Claimed",
            "DELETE FROM cart USING claimed WHERE id = $1 -- the whole cart",
        ] {
            assert_eq!(unsuitable(sql), None, "{sql}");
        }
        for (sql, why) in [
            ("", "another word"),
            ("SELECT 1 FROM claimed", "another word"),
            ("COMMIT", "another word"),
            ("ROLLBACK -- INSERT INTO paid SELECT 1 FROM claimed", "another word"),
            ("DELETE FROM cart USING claimed; COMMIT", "semicolon"),
            ("WITH x AS (SELECT 1) INSERT INTO paid SELECT 1 FROM claimed", "another word"),
            ("INSERT INTO paid SELECT 1 FROM claimed RETURNING id", "RETURNING"),
            ("INSERT INTO paid SELECT 1 FROM claimed;", "semicolon"),
            ("INSERT INTO paid VALUES (1)", "`claimed`"),
            ("INSERT INTO unclaimed_paid VALUES (1)", "`claimed`"),
        ] {
            assert!(unsuitable(sql).is_some_and(|said| said.contains(why)), "{sql}");
        }
    }

    #[test]
    fn the_values_of_a_statement_are_not_shown() {
        let statement = sqlx::query("INSERT INTO paid SELECT $1 FROM claimed").bind("secret");
        let shown = format!("{:?}", EffectStatement::new(statement));
        assert!(shown.contains("INSERT INTO paid") && !shown.contains("secret"), "{shown}");
    }
}
