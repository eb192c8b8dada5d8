//! What holds on each database.
mod alerts;
mod consuming;
mod cost;
mod crashes;
mod guards;
mod manual;
mod order;
pub(super) mod outage;
mod plans;
mod sending;
mod setup;
mod skipping;
mod timed;
mod truth;
pub(super) mod world;
mod writing;

use super::own;
