//! The selection of keys.
use std::time::Duration;

use idempotent_core::{Record, RecordEntry, State, StateKind, Timestamp};

use crate::{OperateError, escaped};

/// A name, or a prefix of names.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum NamePattern {
    /// Exactly this name.
    Exact(String),
    /// All names that begin with this text.
    Prefix(String),
}

impl NamePattern {
    /// Parses a name, or a prefix that ends in `*`.
    ///
    /// # Errors
    /// [`Pattern`](OperateError::Pattern) if the text is empty, or has a `*` before its end.
    pub fn parse(text: &str) -> Result<Self, OperateError> {
        let (name, is_prefix) = text.strip_suffix('*').map_or((text, false), |name| (name, true));
        if text.is_empty() || name.contains('*') {
            return Err(OperateError::Pattern { text: escaped(text) });
        }
        Ok(if is_prefix { Self::Prefix(name.to_owned()) } else { Self::Exact(name.to_owned()) })
    }

    fn matches(&self, name: &str) -> bool {
        match self {
            Self::Exact(exact) => exact == name,
            Self::Prefix(prefix) => name.starts_with(prefix.as_str()),
        }
    }
}

/// A selection of keys by their name and record. The default selects consuming, failed and dead keys of every scope.
///
/// All times are measured by the store's clock.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct KeyFilter {
    /// The executor's namespace, or `None` for every namespace that the store lists.
    pub namespace: Option<String>,
    /// The scene.
    pub scene: Option<NamePattern>,
    /// The scope.
    pub scope: Option<NamePattern>,
    /// The states.
    pub states: Vec<StateKind>,
    /// True to select only consuming keys whose lease ended longer ago than it lasted. Their owner is probably gone.
    pub orphaned: bool,
    /// The shortest time since the last write.
    pub older_than: Option<Duration>,
    /// The longest time since the last write.
    pub newer_than: Option<Duration>,
    /// The smallest number of attempts.
    pub min_attempt: u32,
}

impl Default for KeyFilter {
    fn default() -> Self {
        Self {
            namespace: None,
            scene: None,
            scope: None,
            states: vec![StateKind::Consuming, StateKind::Failed, StateKind::Dead],
            orphaned: false,
            older_than: None,
            newer_than: None,
            min_attempt: 0,
        }
    }
}

impl KeyFilter {
    /// Returns whether the filter selects an entry at the store's time `now`.
    #[must_use]
    pub fn matches(&self, entry: &RecordEntry, now: Timestamp) -> bool {
        let record = &entry.record;
        let age = now - record.updated_at;
        self.states.contains(&record.state.kind())
            && record.attempt >= self.min_attempt
            && self.older_than.is_none_or(|least| age >= least)
            && self.newer_than.is_none_or(|most| age <= most)
            && (!self.orphaned || is_orphaned(record, now))
            && self.matches_name(entry.key.name())
    }

    /// Compares the parts of `NAMESPACE:SCENE:SCOPE`. A namespace may contain colons, a scene and a scope may as well.
    fn matches_name(&self, name: &str) -> bool {
        let rest = match &self.namespace {
            Some(namespace) => name.strip_prefix(namespace.as_str()).and_then(|rest| rest.strip_prefix(':')),
            None => name.split_once(':').map(|(_, rest)| rest),
        };
        let Some((scene, scope)) = rest.and_then(|rest| rest.split_once(':')) else { return false };
        self.scene.as_ref().is_none_or(|pattern| pattern.matches(scene))
            && self.scope.as_ref().is_none_or(|pattern| pattern.matches(scope))
    }
}

/// Returns true for a consuming key whose lease ended longer ago than it lasted since its last renewal.
fn is_orphaned(record: &Record, now: Timestamp) -> bool {
    match record.state {
        State::Consuming { until, .. } => now - until > until - record.updated_at && until < now,
        _ => false,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use idempotent_core::{FencingToken, Identity, OwnerToken, Scene};

    use super::*;

    const SECOND: u64 = 1_000_000;

    fn entry(scope: &'static str, state: State) -> RecordEntry {
        let key = Identity::new(Scene::Mq, scope, "o-17").key("shop").unwrap();
        let times = (Timestamp(100 * SECOND), Timestamp(900 * SECOND));
        let record = Record {
            fencing: FencingToken(7),
            attempt: 2,
            fingerprint: None,
            state,
            expires_at: times.1,
            first_seen: times.0,
            updated_at: times.0,
            display: None,
        };
        RecordEntry { key, record }
    }

    fn consuming() -> RecordEntry {
        let until = Timestamp(130 * SECOND);
        entry("orders", State::Consuming { owner: OwnerToken(9), until, taken_over: None })
    }

    #[test]
    fn a_consuming_key_is_orphaned_one_lease_after_its_lease() {
        let filter = KeyFilter { orphaned: true, ..KeyFilter::default() };
        for (at, orphaned) in [(129, false), (131, false), (160, false), (161, true)] {
            assert_eq!(filter.matches(&consuming(), Timestamp(at * SECOND)), orphaned, "at {at} s");
        }
        let dead = entry("orders", State::Dead { error: "no stock".into() });
        assert!(!filter.matches(&dead, Timestamp(800 * SECOND)));
    }

    #[test]
    fn names_states_ages_and_attempts_are_compared() {
        let now = Timestamp(160 * SECOND);
        let pattern = |text| Some(NamePattern::parse(text).unwrap());
        let all = KeyFilter::default;
        let minute = Some(Duration::from_secs(60));
        for (filter, selected) in [
            (all(), true),
            (KeyFilter { namespace: Some("shop".into()), ..all() }, true),
            (KeyFilter { namespace: Some("sho".into()), ..all() }, false),
            (KeyFilter { scene: pattern("mq"), ..all() }, true),
            (KeyFilter { scene: pattern("rest"), ..all() }, false),
            (KeyFilter { scope: pattern("orders"), ..all() }, true),
            (KeyFilter { scope: pattern("order"), ..all() }, false),
            (KeyFilter { scope: pattern("order*"), ..all() }, true),
            (KeyFilter { scope: pattern("*"), ..all() }, true),
            (KeyFilter { states: vec![StateKind::Dead], ..all() }, false),
            (KeyFilter { older_than: minute, ..all() }, true),
            (KeyFilter { older_than: minute.map(|m| m * 2), ..all() }, false),
            (KeyFilter { newer_than: minute, ..all() }, true),
            (KeyFilter { newer_than: minute.map(|m| m / 2), ..all() }, false),
            (KeyFilter { min_attempt: 2, ..all() }, true),
            (KeyFilter { min_attempt: 3, ..all() }, false),
        ] {
            assert_eq!(filter.matches(&consuming(), now), selected, "{filter:?}");
        }
    }

    #[test]
    fn a_star_inside_a_pattern_is_refused() {
        for text in ["", "a*b", "**"] {
            assert!(matches!(NamePattern::parse(text), Err(OperateError::Pattern { .. })), "{text}");
        }
    }
}
