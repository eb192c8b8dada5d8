//! What holds on each database.
mod adapter;
mod dead;
mod plans;
mod scheduling;
mod setup;
mod taking;
mod waking;
mod world;

use super::own;
