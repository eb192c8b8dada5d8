//! Statements with parameters, and the values bound to them.
use std::sync::Arc;

use sqlx::AssertSqlSafe;

use super::driver::{Driver, Query};
use super::value::Value;

/// A statement with parameters: `$1`, `$2` … mean the same in every dialect.
#[derive(Clone, Debug)]
pub(crate) struct Statement {
    sql: Arc<str>,
    /// The number of the parameter for each question mark, if the dialect has no numbered parameters.
    places: Option<Arc<[usize]>>,
}

impl Statement {
    /// Creates a statement with numbered parameters, for PostgreSQL.
    #[cfg(feature = "postgres")]
    pub(crate) fn numbered(sql: String) -> Self {
        Self { sql: sql.into(), places: None }
    }

    /// Creates a statement with question marks as parameters, for MySQL.
    #[cfg(feature = "mysql")]
    pub(crate) fn marks(numbered: &str) -> Self {
        let mut places = Vec::new();
        // Every second part is a quoted name, which may contain any letter.
        let part = |(nth, part): (usize, &str)| match nth % 2 {
            0 => question_marks(part, &mut places),
            _ => part.to_owned(),
        };
        let sql = numbered.split('`').enumerate().map(part).collect::<Vec<_>>().join("`");
        Self { sql: sql.into(), places: Some(places.into()) }
    }
}

/// Replaces the numbered parameters, and collects their numbers.
#[cfg(feature = "mysql")]
fn question_marks(numbered: &str, places: &mut Vec<usize>) -> String {
    let mut parts = numbered.split('$');
    let mut sql = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        places.push(part[..end].parse().unwrap_or_default());
        sql.push('?');
        sql.push_str(&part[end..]);
    }
    sql
}

/// A statement with the values bound so far.
#[derive(Clone, Debug)]
pub(crate) struct BoundStatement<D: Driver> {
    text: Statement,
    values: Vec<D::Value>,
}

impl<D: Driver> BoundStatement<D> {
    pub(crate) fn new(text: &Statement) -> Self {
        Self { text: text.clone(), values: Vec::with_capacity(9) }
    }

    pub(crate) fn bind(self, value: impl Into<Value>) -> Self {
        self.bind_native(value.into().into())
    }

    /// Binds a value of a type that only this dialect has.
    pub(crate) fn bind_native(mut self, value: D::Value) -> Self {
        self.values.push(value);
        self
    }

    pub(crate) fn bind_all(self, values: impl IntoIterator<Item = Value>) -> Self {
        values.into_iter().fold(self, Self::bind)
    }

    pub(crate) fn query(self) -> Query<D> {
        let query = sqlx::query(AssertSqlSafe(self.text.sql));
        match self.text.places {
            None => self.values.into_iter().fold(query, D::bind),
            Some(places) => {
                let nth = |place: &usize| self.values.get(place.wrapping_sub(1)).cloned();
                places.iter().filter_map(nth).fold(query, D::bind)
            }
        }
    }
}
