//! On PostgreSQL.
#[path = "../laws/dead.rs"]
#[allow(clippy::duplicate_mod, reason = "the same for each database")]
mod dead;
#[path = "../laws/laws.rs"]
#[allow(clippy::duplicate_mod, reason = "the same for each database")]
mod laws;
mod own;
#[path = "../laws/plans.rs"]
#[allow(clippy::duplicate_mod, reason = "the same for each database")]
mod plans;
#[path = "../laws/scheduling.rs"]
#[allow(clippy::duplicate_mod, reason = "the same for each database")]
mod scheduling;
#[path = "../laws/setup.rs"]
#[allow(clippy::duplicate_mod, reason = "the same for each database")]
mod setup;
#[path = "../laws/taking.rs"]
#[allow(clippy::duplicate_mod, reason = "the same for each database")]
mod taking;
#[path = "../laws/waking.rs"]
#[allow(clippy::duplicate_mod, reason = "the same for each database")]
mod waking;
#[path = "../laws/world.rs"]
#[allow(clippy::duplicate_mod, reason = "the same for each database")]
mod world;
