//! The count of failed logins.
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

const WINDOW: Duration = Duration::from_secs(60);
/// The largest number of addresses. Beyond it, new addresses share one limit.
const ADDRESSES: usize = 1_000;

/// Counts failed logins by address. Requests without a known address share one limit.
#[derive(Debug, Default)]
pub(crate) struct Throttle(Mutex<HashMap<Option<IpAddr>, (Instant, u32)>>);

impl Throttle {
    /// The failed logins that one address may make within [`WINDOW`].
    pub(crate) const MOST: u32 = 10;

    /// Counts a failed login, and returns the number of this address within [`WINDOW`].
    pub(crate) fn failed(&self, address: Option<IpAddr>) -> u32 {
        let now = Instant::now();
        let mut failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        failures.retain(|_, (since, _)| now - *since < WINDOW);
        let address = if failures.contains_key(&address) || failures.len() < ADDRESSES { address } else { None };
        let (_, count) = failures.entry(address).or_insert((now, 0));
        *count = count.saturating_add(1);
        *count
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn failures_are_counted_by_address_for_a_minute() {
        let throttle = Throttle::default();
        let [one, other] = [1, 2].map(|last| Some(IpAddr::from([10, 0, 0, last])));
        assert_eq!([one, one, other].map(|address| throttle.failed(address)), [1, 2, 1]);
        tokio::time::advance(WINDOW).await;
        assert_eq!(throttle.failed(one), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_addresses_is_bounded() {
        let throttle = Throttle::default();
        for number in 0..2 * ADDRESSES as u32 {
            throttle.failed(Some(IpAddr::from(number.to_be_bytes())));
        }
        assert!(throttle.0.lock().unwrap().len() <= ADDRESSES + 1);
        assert!(throttle.failed(Some(IpAddr::from([99, 0, 0, 1]))) > Throttle::MOST);
    }
}
