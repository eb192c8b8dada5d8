//! The PostgreSQL store on a real server.
#[path = "server/tls.rs"]
mod by_tls;
mod commits;
#[path = "server/conformance.rs"]
mod conformance;
mod connecting;
#[path = "server/demoted.rs"]
mod demoted;
mod dialect;
#[path = "server/errors.rs"]
mod errors;
#[path = "server/connecting.rs"]
mod explained;
#[path = "server/failover.rs"]
mod failover;
pub(crate) mod fixture;
mod health;
#[path = "server/insert_only.rs"]
mod insert_only;
mod partitions;
mod plans;
mod pooler;
#[path = "server/protocol.rs"]
mod protocol;
mod purge;
#[path = "server/purge.rs"]
mod purged;
#[path = "server/read_only.rs"]
mod read_only;
#[path = "server/recent_keys.rs"]
mod recent_keys;
#[path = "server/results.rs"]
mod results;
#[path = "server/setup.rs"]
mod setup;
mod steps;
mod store_laws;
#[path = "server/tiered.rs"]
mod tiered;
mod tls;
mod versions;
mod watch;
