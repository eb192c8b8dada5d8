//! Documented behavior on a virtual clock: over memory, SQLite, and private servers of PostgreSQL and MariaDB.

mod drain;
mod lease;
mod nested;
mod settle;
mod settle_timeout;
mod wait;
