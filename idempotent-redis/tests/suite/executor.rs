//! Runs through executors on a real server. The facade's `tests/integration/suite/behaviour` covers the same cases with
//! exact times in simulated worlds; these tests cover the scripts, the connection and the server's own clock.
mod concurrent_claims;
mod leases;
mod ordering;
mod retention;
mod settlement;
mod waiting;
mod worker_death;
