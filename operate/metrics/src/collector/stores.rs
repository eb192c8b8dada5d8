//! The counts of stores.
use async_trait::async_trait;
use idempotent_core::TieredStore;

use super::MetricsCollector;
use super::source::{FollowedTotal, Source};
use crate::catalogue;
use crate::recording::Recording;

impl MetricsCollector {
    /// Adds a store of two tiers: the answers of its fast tier.
    pub fn tiers(self, name: impl Into<String>, store: &TieredStore) -> Self {
        let name = name.into();
        let results = ["hit", "miss", "repaired", "remembered", "failed"];
        let counter = |result| self.recording.counter(&catalogue::TIER_LOOKUPS, &[&name, result]);
        let totals = results.map(|result| FollowedTotal::new(counter(result)));
        self.add(TierSource { name, store: store.clone(), totals })
    }

    /// Adds a Redis store: writes that were not replicated, redirections, hits of the cache, and evicted keys.
    #[cfg(feature = "redis")]
    pub fn redis(self, name: impl Into<String>, store: &idempotent_redis::RedisStore) -> Self {
        let name = name.into();
        let lost = |operation| self.recording.counter(&catalogue::NOT_REPLICATED, &[&name, operation]);
        let counter = |metric| self.recording.counter(metric, &[&name]);
        let totals =
            [lost("claim"), lost("complete"), counter(&catalogue::REDIRECTIONS), counter(&catalogue::CACHE_HITS)];
        self.add(RedisSource { totals: totals.map(FollowedTotal::new), name, store: store.clone() })
    }
}

struct TierSource {
    name: String,
    store: TieredStore,
    totals: [FollowedTotal; 5],
}

#[async_trait]
impl Source for TierSource {
    fn name(&self) -> String {
        format!("tiers:{}", self.name)
    }

    async fn read(&mut self, _: &Recording) -> bool {
        let counts = self.store.counts();
        let counts = [counts.hits, counts.misses, counts.repaired, counts.remembered, counts.failed];
        self.totals.iter_mut().zip(counts).for_each(|(total, count)| total.follow(count));
        true
    }

    fn set_unknown(&self, _: &Recording) {}
}

#[cfg(feature = "redis")]
struct RedisSource {
    name: String,
    store: idempotent_redis::RedisStore,
    totals: [FollowedTotal; 4],
}

#[cfg(feature = "redis")]
#[async_trait]
impl Source for RedisSource {
    fn name(&self) -> String {
        format!("redis:{}", self.name)
    }

    async fn read(&mut self, recording: &Recording) -> bool {
        let counts = self.store.counts();
        let counts =
            [counts.claims_not_replicated, counts.completions_not_replicated, counts.redirections, counts.cache_hits];
        self.totals.iter_mut().zip(counts).for_each(|(total, count)| total.follow(count));
        let Ok(evicted) = self.store.evicted_keys().await else { return false };
        recording.gauge(&catalogue::EVICTED_KEYS, &[&self.name]).set(evicted as f64);
        true
    }

    fn set_unknown(&self, recording: &Recording) {
        recording.gauge(&catalogue::EVICTED_KEYS, &[&self.name]).set(f64::NAN);
    }
}
