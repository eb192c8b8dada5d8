//! On MariaDB.
mod backend;
#[path = "../server/commits.rs"]
mod commits;
#[path = "../common.rs"]
mod common;
#[path = "../ended.rs"]
mod ended;
#[path = "../fenced.rs"]
mod fenced;
#[path = "../server/hidden_commits.rs"]
mod hidden_commits;
#[path = "../server/isolation.rs"]
mod isolation;
#[path = "../killed.rs"]
mod killed;
#[path = "../server/locks.rs"]
mod locks;
#[path = "../server/steps.rs"]
mod lost_steps;
#[path = "../server/sessions.rs"]
mod sessions;
#[path = "../steps.rs"]
mod steps;
#[path = "../server/world.rs"]
mod world;

use crate::mysql::fixture;
