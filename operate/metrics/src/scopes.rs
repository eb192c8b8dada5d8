//! The metrics of each scope, with a limit of their number.
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use idempotent_core::Scene;

use crate::recording::Recording;
use crate::scope_metrics::ScopeMetrics;

/// The label of the scopes over the limit.
const OTHER: &str = "other";

/// The metrics by scope, and those of all scopes over the limit.
#[derive(Debug, Default)]
pub(crate) struct ScopeTable {
    scopes: RwLock<KnownScopes>,
    other: OnceLock<Arc<ScopeMetrics>>,
    warned: AtomicBool,
}

#[derive(Debug, Default)]
struct KnownScopes {
    /// The scenes of each scope: nearly always one.
    by_scope: HashMap<Box<str>, Vec<(Scene, Arc<ScopeMetrics>)>>,
    number: usize,
}

impl KnownScopes {
    fn find(&self, scene: &Scene, scope: &str) -> Option<&Arc<ScopeMetrics>> {
        self.by_scope.get(scope)?.iter().find(|(known, _)| known == scene).map(|(_, metrics)| metrics)
    }
}

impl ScopeTable {
    /// Calls `record` with the metrics of this scope. Creates the metrics for a new scope, within the limit.
    pub(crate) fn with(
        &self,
        recording: &Recording,
        max_scopes: usize,
        (scene, scope): (&Scene, &str),
        record: impl FnOnce(&ScopeMetrics),
    ) {
        let full = {
            let known = self.scopes.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(metrics) = known.find(scene, scope) {
                return record(metrics);
            }
            known.number >= max_scopes
        };
        let metrics = if full { None } else { self.add(recording, max_scopes, scene, scope) };
        record(&metrics.unwrap_or_else(|| self.other(recording, scope)));
    }

    /// Adds a scope, unless another thread has added it, or the last one within the limit.
    fn add(&self, recording: &Recording, max: usize, scene: &Scene, scope: &str) -> Option<Arc<ScopeMetrics>> {
        let mut known = self.scopes.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(metrics) = known.find(scene, scope) {
            return Some(metrics.clone());
        }
        if known.number >= max {
            return None;
        }
        let metrics = Arc::new(ScopeMetrics::new(recording, scene.as_str(), scope));
        known.by_scope.entry(scope.into()).or_default().push((scene.clone(), metrics.clone()));
        known.number += 1;
        Some(metrics)
    }

    fn other(&self, recording: &Recording, scope: &str) -> Arc<ScopeMetrics> {
        if !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(target: "idempotent", scope, "too many scopes for metrics: further ones count as `other`; see `max_scopes`");
        }
        self.other.get_or_init(|| Arc::new(ScopeMetrics::new(recording, OTHER, OTHER))).clone()
    }
}
