//! The limit on failed logins.
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The failed logins that one address may make within [`WINDOW`].
const MOST: u32 = 10;
const WINDOW: Duration = Duration::from_secs(60);
/// The largest number of addresses. Beyond it, new addresses share one limit.
const ADDRESSES: usize = 1_000;

/// Counts failed logins by address. Requests without a known address share one limit.
#[derive(Debug, Default)]
pub(crate) struct Throttle(Mutex<HashMap<Option<IpAddr>, (Instant, u32)>>);

impl Throttle {
    /// Returns whether a login from this address is admitted now.
    pub(crate) fn admits(&self, address: Option<IpAddr>) -> bool {
        let failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let address = if failures.contains_key(&address) || failures.len() < ADDRESSES { address } else { None };
        failures.get(&address).is_none_or(|(since, count)| since.elapsed() >= WINDOW || *count < MOST)
    }

    /// Counts a failed login.
    pub(crate) fn failed(&self, address: Option<IpAddr>) {
        let now = Instant::now();
        let mut failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        failures.retain(|_, (since, _)| now - *since < WINDOW);
        let address = if failures.contains_key(&address) || failures.len() < ADDRESSES { address } else { None };
        failures.entry(address).or_insert((now, 0)).1 += 1;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn ten_failures_block_one_address_for_a_minute() {
        let throttle = Throttle::default();
        let [one, other] = [1, 2].map(|last| Some(IpAddr::from([10, 0, 0, last])));
        for _ in 0..MOST {
            assert!(throttle.admits(one));
            throttle.failed(one);
        }
        assert!(!throttle.admits(one) && throttle.admits(other));
        tokio::time::advance(WINDOW).await;
        assert!(throttle.admits(one));
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_addresses_is_bounded() {
        let throttle = Throttle::default();
        for number in 0..2 * ADDRESSES as u32 {
            throttle.failed(Some(IpAddr::from(number.to_be_bytes())));
        }
        assert!(throttle.0.lock().unwrap().len() <= ADDRESSES + 1);
        assert!(!throttle.admits(Some(IpAddr::from([99, 0, 0, 1]))));
    }
}
