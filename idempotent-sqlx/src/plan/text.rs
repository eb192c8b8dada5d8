//! A statement's text, and what is bound to it.
use std::sync::Arc;

use sqlx::{AssertSqlSafe, Database};

use super::Dialect;

/// A text with parameters: `$1`, `$2` … mean the same in every dialect.
#[derive(Clone, Debug)]
pub(crate) struct Text {
    sql: Arc<str>,
    /// Which of them each place takes, where places have no numbers.
    places: Option<Arc<[usize]>>,
}

impl Text {
    /// As PostgreSQL takes it.
    #[cfg(feature = "postgres")]
    pub(crate) fn numbered(sql: String) -> Self {
        Self { sql: sql.into(), places: None }
    }

    /// With a question mark in each place, as MySQL takes it.
    #[cfg(feature = "mysql")]
    pub(crate) fn marks(numbered: &str) -> Self {
        let mut parts = numbered.split('$');
        let mut sql = parts.next().unwrap_or_default().to_owned();
        let mut places = Vec::new();
        for part in parts {
            let end = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
            places.push(part[..end].parse().unwrap_or_default());
            sql.push('?');
            sql.push_str(&part[end..]);
        }
        Self { sql: sql.into(), places: Some(places.into()) }
    }
}

/// What goes into a place.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Int(Option<i64>),
    Bytes(Option<Vec<u8>>),
}

impl Value {
    /// How many there are of them.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Int(_) => size_of::<i64>(),
            Self::Bytes(bytes) => bytes.as_ref().map_or(0, Vec::len),
        }
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Int(Some(number))
    }
}

impl From<Option<i64>> for Value {
    fn from(number: Option<i64>) -> Self {
        Self::Int(number)
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(Some(bytes))
    }
}

impl From<Option<Vec<u8>>> for Value {
    fn from(bytes: Option<Vec<u8>>) -> Self {
        Self::Bytes(bytes)
    }
}

/// A text of somebody's, which may hold characters that a database's text cannot.
impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Bytes(Some(text.as_bytes().to_vec()))
    }
}

impl From<Option<&str>> for Value {
    fn from(text: Option<&str>) -> Self {
        Self::Bytes(text.map(|text| text.as_bytes().to_vec()))
    }
}

/// The driver's statement, prepared on its connection and kept there.
pub(crate) type Query<D> = sqlx::query::Query<'static, <D as Dialect>::Db, <<D as Dialect>::Db as Database>::Arguments>;

/// A text with what is bound so far.
#[derive(Clone, Debug)]
pub(crate) struct Ask<D: Dialect> {
    text: Text,
    values: Vec<D::Value>,
}

impl<D: Dialect> Ask<D> {
    pub(crate) fn new(text: &Text) -> Self {
        Self { text: text.clone(), values: Vec::with_capacity(9) }
    }

    pub(crate) fn bind(self, value: impl Into<Value>) -> Self {
        self.bind_its_own(value.into().into())
    }

    /// What only this dialect can bind.
    pub(crate) fn bind_its_own(mut self, value: D::Value) -> Self {
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
