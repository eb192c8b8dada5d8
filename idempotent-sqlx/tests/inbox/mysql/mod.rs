//! On MariaDB.
#[path = "../server/commits.rs"]
#[allow(clippy::duplicate_mod, reason = "the same for each server")]
mod commits;
#[path = "../server/isolation.rs"]
#[allow(clippy::duplicate_mod, reason = "the same for each server")]
mod isolation;
#[path = "../laws.rs"]
#[allow(clippy::duplicate_mod, reason = "the same laws for each database")]
mod laws;
#[path = "../server/locks.rs"]
#[allow(clippy::duplicate_mod, reason = "the same for each server")]
mod locks;
#[path = "../server/steps.rs"]
#[allow(clippy::duplicate_mod, reason = "the same for each server")]
mod lost_steps;
mod own;
#[path = "../../mysql/place.rs"]
#[allow(dead_code, reason = "shared with the store's own tests")]
mod place;
#[path = "../steps.rs"]
#[allow(clippy::duplicate_mod, reason = "the same laws for each database")]
mod steps;
#[path = "../server/world.rs"]
#[allow(clippy::duplicate_mod, reason = "the same for each server")]
mod world;
