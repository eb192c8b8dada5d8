//! The counts of stores.
use idempotent_core::TieredStore;

use super::MetricsCollector;
use super::source::{FollowedTotals, TotalsSource};
use crate::catalogue;

impl MetricsCollector {
    /// Adds a store of two tiers: the answers of its fast tier.
    pub fn tiers(self, name: impl Into<String>, store: &TieredStore) -> Self {
        let name = name.into();
        let results = ["hit", "miss", "repaired", "remembered", "failed"];
        let counter = |result| self.recording.counter(&catalogue::TIER_LOOKUPS, &[&name, result]);
        let (totals, store) = (FollowedTotals::new(results.map(counter)), store.clone());
        let counts = move || {
            let counts = store.counts();
            [counts.hits, counts.misses, counts.repaired, counts.remembered, counts.failed]
        };
        self.add(TotalsSource { name: format!("tiers:{name}"), totals, counts })
    }

    /// Adds a Redis store: writes that were not replicated, redirections, hits of the cache, and evicted keys.
    #[cfg(feature = "redis")]
    pub fn redis(self, name: impl Into<String>, store: &idempotent_redis::RedisStore) -> Self {
        let name = name.into();
        let lost = |operation| self.recording.counter(&catalogue::NOT_REPLICATED, &[&name, operation]);
        let counter = |metric| self.recording.counter(metric, &[&name]);
        let totals =
            [lost("claim"), lost("complete"), counter(&catalogue::REDIRECTIONS), counter(&catalogue::CACHE_HITS)];
        self.add(RedisSource { totals: FollowedTotals::new(totals), name, store: store.clone() })
    }
}

#[cfg(feature = "redis")]
struct RedisSource {
    name: String,
    store: idempotent_redis::RedisStore,
    totals: FollowedTotals<4>,
}

#[cfg(feature = "redis")]
#[async_trait::async_trait]
impl super::source::Source for RedisSource {
    fn name(&self) -> String {
        format!("redis:{}", self.name)
    }

    async fn read(&mut self, recording: &crate::recording::Recording) -> bool {
        let counts = self.store.counts();
        let lost = [counts.claims_not_replicated, counts.completions_not_replicated];
        self.totals.follow([lost[0], lost[1], counts.redirections, counts.cache_hits]);
        let Ok(evicted) = self.store.evicted_keys().await else { return false };
        recording.gauge(&catalogue::EVICTED_KEYS, &[&self.name]).set(evicted as f64);
        true
    }

    fn set_unknown(&self, recording: &crate::recording::Recording) {
        recording.gauge(&catalogue::EVICTED_KEYS, &[&self.name]).set(f64::NAN);
    }
}
