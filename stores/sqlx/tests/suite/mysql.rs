//! The MySQL store on a real MariaDB.
#[path = "server/tls.rs"]
mod by_tls;
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
#[path = "server/protocol.rs"]
mod protocol;
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
mod store_laws;
#[path = "server/tiered.rs"]
mod tiered;
mod tls;
