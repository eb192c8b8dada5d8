//! The PostgreSQL store on a real server.
#[path = "server/tls.rs"]
mod by_tls;
mod commits;
#[path = "server/conformance.rs"]
mod conformance;
#[path = "server/errors.rs"]
mod errors;
#[path = "server/failover.rs"]
mod failover;
mod laws;
mod own;
#[path = "server/pages.rs"]
mod pages;
pub(crate) mod place;
mod plans;
mod pooler;
#[path = "server/protocol.rs"]
mod protocol;
mod purge;
#[path = "server/recent_keys.rs"]
mod recent_keys;
#[path = "server/results.rs"]
mod results;
#[path = "server/setup.rs"]
mod setup;
#[path = "server/step_purge.rs"]
mod step_purge;
mod steps;
#[path = "server/tiered.rs"]
mod tiered;
mod tls;
#[path = "server/unique.rs"]
mod unique;
mod versions;
mod watch;
