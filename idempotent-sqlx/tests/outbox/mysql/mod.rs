//! On MariaDB.
mod away;
#[path = "../laws/consuming.rs"]
#[allow(clippy::duplicate_mod, reason = "the same for each database")]
mod consuming;
#[path = "../laws/cost.rs"]
#[allow(clippy::duplicate_mod, reason = "the same for each database")]
mod cost;
#[path = "../laws/crashes.rs"]
#[allow(clippy::duplicate_mod, reason = "the same for each database")]
mod crashes;
#[path = "../laws/guards.rs"]
#[allow(clippy::duplicate_mod, reason = "the same for each database")]
mod guards;
#[path = "../laws/manual.rs"]
#[allow(clippy::duplicate_mod, reason = "the same for each database")]
mod manual;
#[path = "../laws/order.rs"]
#[allow(clippy::duplicate_mod, reason = "the same for each database")]
mod order;
mod own;
#[path = "../laws/plans.rs"]
#[allow(clippy::duplicate_mod, reason = "the same for each database")]
mod plans;
#[path = "../laws/sending.rs"]
#[allow(clippy::duplicate_mod, reason = "the same for each database")]
mod sending;
#[path = "../laws/setup.rs"]
#[allow(clippy::duplicate_mod, reason = "the same for each database")]
mod setup;
#[path = "../laws/truth.rs"]
#[allow(clippy::duplicate_mod, reason = "the same for each database")]
mod truth;
#[path = "../laws/world.rs"]
#[allow(clippy::duplicate_mod, reason = "the same for each database")]
mod world;
#[path = "../laws/writing.rs"]
#[allow(clippy::duplicate_mod, reason = "the same for each database")]
mod writing;
