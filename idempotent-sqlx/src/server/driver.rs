//! The part of a database that is its driver: how statements are bound and sent, and what its errors mean.
use std::fmt::Debug;

use idempotent_core::Key;
use sqlx::Database;
use sqlx::error::DatabaseError;

use super::refusal::{Contention, Refusal};
use super::value::Value;
use crate::row::Cells;

/// What a database's driver supplies.
pub(crate) trait Driver: Debug + Send + Sync + Sized + 'static {
    type Db: Database<Row: Cells>;
    /// What its statements bind.
    type Value: From<Value> + Clone + Debug + Send + Sync;

    /// What it is called in errors.
    const NAME: &'static str;
    /// The parameter of its URL that says how TLS is used.
    const TLS: &'static str;

    fn bind(query: Query<Self>, value: Self::Value) -> Query<Self>;

    /// How many rows were written.
    fn execute(query: Query<Self>, connection: &mut Connection<Self>) -> impl DriverFuture<u64>;
    /// The first row.
    fn first(query: Query<Self>, connection: &mut Connection<Self>) -> impl DriverFuture<Option<Row<Self>>>;
    /// All rows.
    fn all(query: Query<Self>, connection: &mut Connection<Self>) -> impl DriverFuture<Vec<Row<Self>>>;

    /// What a refusal of the server lets a caller conclude.
    fn refusal(error: &dyn DatabaseError) -> Refusal;
    /// Whether a statement failed because of others, and nothing of it was done.
    fn contention(error: &dyn DatabaseError) -> Option<Contention>;

    /// The number of a key's lock, where claims take one.
    fn lock(&self, _: &Key) -> Option<i64> {
        None
    }

    /// Bytes of the largest value that it takes.
    fn most(&self) -> usize {
        usize::MAX
    }

    /// Whether a statement that failed so was the end of the transaction it stood in.
    fn ends(&self, error: &dyn DatabaseError) -> bool;
}

/// What a driver's future comes to.
pub(crate) trait DriverFuture<T>: Future<Output = Result<T, sqlx::Error>> + Send {}
impl<T, F: Future<Output = Result<T, sqlx::Error>> + Send> DriverFuture<T> for F {}

pub(crate) type Connection<D> = <<D as Driver>::Db as Database>::Connection;
pub(crate) type Row<D> = <<D as Driver>::Db as Database>::Row;

/// The driver's statement, prepared on its connection and kept there.
pub(crate) type Query<D> = sqlx::query::Query<'static, <D as Driver>::Db, <<D as Driver>::Db as Database>::Arguments>;
