//! The outbox, on each database.
mod broker;
mod logs;
mod memory_queue;
mod mutant;
mod mutants;
mod mysql;
mod postgres;
mod sqlite;
