//! Outcomes of runs over a real server. Simulated worlds go through the same cases with exact times (the facade's
//! `tests/integration/suite/behaviour`); here it is the scripts, the connection and the server's own clock.
mod concurrent_claims;
mod leases;
mod ordering;
mod retention;
mod settlement;
mod waiting;
mod worker_death;
