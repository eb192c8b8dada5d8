//! Delayed work, on each database.
mod clock;
mod mysql;
mod postgres;
mod sqlite;
mod timing_wheel;
