//! Tests that run on each database.
mod adapter;
mod dead_letters;
mod delivery;
mod plans;
mod scheduling;
mod setup;
mod sizes;
mod waiting;
mod world;

use super::backend;
