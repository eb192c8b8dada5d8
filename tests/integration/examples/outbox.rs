//! An outbox on SQLite, its relay and its consumers on Redis: a stream, and a delay queue; and the application
//! `outbox_payment` from outside.
mod delay;
mod payment;
mod streams;
pub(crate) mod world;
