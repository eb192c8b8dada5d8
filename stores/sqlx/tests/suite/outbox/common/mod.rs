//! Tests that run on each database.
mod alerts;
mod consuming;
mod cost;
mod counts;
mod crashes;
mod delayed;
mod enqueue;
mod guards;
mod operator_actions;
mod order;
pub(super) mod outage;
mod plans;
mod resend_policy;
mod sending;
mod setup;
mod skipping;
mod time_limits;
pub(super) mod world;

use super::backend;
