//! Delayed work, on each database.
mod clock;
mod mysql;
mod postgres;
mod sqlite;
mod timing_wheel;

/// A word of the error of a task that exceeds the limit of the table.
const TOO_LARGE: &str = "the limit is 67108864";

/// Returns the size of the largest body, next to the header of the test and its lengths.
async fn largest_body<Db: sqlx::Database>(_: &sqlx::Pool<Db>, _: impl AsyncFn(usize) -> bool) -> usize {
    (64 << 20) - ("trace".len() + "abc".len() + 8)
}
