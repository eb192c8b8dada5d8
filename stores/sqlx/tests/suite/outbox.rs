//! The outbox, on each database.
mod broker;
mod line;
mod mutant;
mod mutants;
mod mysql;
mod postgres;
mod sqlite;
mod told;
