//! On PostgreSQL.
#[path = "../server/commits.rs"]
mod commits;
#[path = "../fenced.rs"]
mod fenced;
#[path = "../server/hidden.rs"]
mod hidden;
#[path = "../server/isolation.rs"]
mod isolation;
#[path = "../killed.rs"]
mod killed;
#[path = "../laws.rs"]
mod laws;
#[path = "../server/locks.rs"]
mod locks;
#[path = "../server/steps.rs"]
mod lost_steps;
mod own;
mod refused;
#[path = "../steps.rs"]
mod steps;
#[path = "../server/world.rs"]
mod world;

use crate::postgres::place;
