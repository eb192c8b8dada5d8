//! The selection of keys by their names and records.
use std::time::Duration;

use crate::{Key, Record, State, StateKind, Timestamp, protocol};

/// A name, or a prefix of names.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum NamePattern {
    /// Exactly this name.
    Exact(String),
    /// All names that begin with this text.
    Prefix(String),
}

/// The error of a pattern that is neither a name nor a prefix that ends in `*`.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("invalid pattern {0:?}: a pattern is a name, or a prefix that ends in `*`")]
pub struct PatternError(String);

impl NamePattern {
    /// Parses a name, or a prefix that ends in `*`.
    ///
    /// # Errors
    /// The text is empty, or has a `*` before its end.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let (name, is_prefix) = text.strip_suffix('*').map_or((text, false), |name| (name, true));
        if text.is_empty() || name.contains('*') {
            return Err(PatternError(text.to_owned()));
        }
        Ok(if is_prefix { Self::Prefix(name.to_owned()) } else { Self::Exact(name.to_owned()) })
    }

    /// Returns whether the last part of `name`, which begins after `before` bytes, matches. Names in keys are encoded and
    /// truncated, so the pattern is compared in the same form.
    fn matches_end(&self, name: &str, before: usize) -> bool {
        let (start, end) = name.split_at(before);
        match self {
            Self::Exact(exact) => end == exact || readable(&[start, exact]) == name,
            Self::Prefix(prefix) => end.starts_with(prefix.as_str()) || name.starts_with(&readable(&[start, prefix])),
        }
    }

    fn text(&self) -> &str {
        match self {
            Self::Exact(text) | Self::Prefix(text) => text,
        }
    }
}

/// Returns a name as keys contain it.
fn readable(parts: &[&str]) -> String {
    Key::from_parts(&parts.concat(), 0).name().to_owned()
}

/// A selection of keys by their name and record. The default selects consuming, failed, dead and unreadable keys of every
/// scope.
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
    /// True to select records that the store cannot read. Only their names are compared. A filter by age, attempts or
    /// leases selects none of them.
    pub unreadable: bool,
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
            unreadable: true,
            orphaned: false,
            older_than: None,
            newer_than: None,
            min_attempt: 0,
        }
    }
}

impl KeyFilter {
    /// Returns a filter that selects every record.
    #[must_use]
    pub fn all() -> Self {
        let states = [StateKind::Vacant, StateKind::Consuming, StateKind::Consumed, StateKind::Failed, StateKind::Dead];
        Self { states: states.to_vec(), ..Self::default() }
    }

    /// Returns a filter that selects the readable records in these states.
    #[must_use]
    pub fn of_states(states: &[StateKind]) -> Self {
        Self { states: states.to_vec(), unreadable: false, ..Self::default() }
    }

    /// Returns whether the filter selects a record at the store's time `now`. An expired record is never selected.
    #[must_use]
    pub fn selects(&self, key: &Key, record: &Record, now: Timestamp) -> bool {
        let age = now - record.updated_at;
        self.states.contains(&record.state.kind())
            && protocol::live(Some(record), now).is_some()
            && record.attempt >= self.min_attempt
            && self.older_than.is_none_or(|least| age >= least)
            && self.newer_than.is_none_or(|most| age <= most)
            && (!self.orphaned || is_orphaned(record, now))
            && self.selects_name(key.name())
    }

    /// Returns whether the filter selects an unreadable record.
    #[must_use]
    pub fn selects_unreadable(&self, key: &Key) -> bool {
        self.selects_any_unreadable() && self.selects_name(key.name())
    }

    /// Returns whether the filter can select an unreadable record, so that a server has to send them.
    #[must_use]
    pub fn selects_any_unreadable(&self) -> bool {
        let needs_fields = self.orphaned || self.older_than.is_some() || self.newer_than.is_some();
        self.unreadable && !needs_fields && self.min_attempt == 0
    }

    /// Returns the text with which the [name](Key::name) of every selected key begins, so that a server can leave out
    /// other keys.
    #[must_use]
    pub fn name_prefix(&self) -> String {
        let Some(namespace) = &self.namespace else { return String::new() };
        let scene = self.scene.as_ref().map_or("", NamePattern::text);
        match (&self.scene, &self.scope) {
            (Some(NamePattern::Exact(_)), Some(scope)) => readable(&[namespace, ":", scene, ":", scope.text()]),
            (Some(NamePattern::Exact(_)), None) => readable(&[namespace, ":", scene, ":"]),
            _ => readable(&[namespace, ":", scene]),
        }
    }

    /// Compares the parts of `NAMESPACE:SCENE:SCOPE`. A namespace may contain colons, a scope may as well.
    fn selects_name(&self, name: &str) -> bool {
        let rest = match &self.namespace {
            Some(namespace) => name.strip_prefix(&*readable(&[namespace])).and_then(|rest| rest.strip_prefix(':')),
            None if self.scene.is_none() && self.scope.is_none() => return true,
            None => name.split_once(':').map(|(_, rest)| rest),
        };
        let Some((scene, scope)) = rest.and_then(|rest| rest.split_once(':')) else { return false };
        let scope_at = name.len() - scope.len();
        let before_scope = &name[..scope_at - 1];
        self.scene.as_ref().is_none_or(|pattern| pattern.matches_end(before_scope, before_scope.len() - scene.len()))
            && self.scope.as_ref().is_none_or(|pattern| pattern.matches_end(name, scope_at))
    }
}

/// Returns whether a lease ended longer ago than it lasted.
fn is_orphaned(record: &Record, now: Timestamp) -> bool {
    match record.state {
        State::Consuming { until, .. } => now - until > until - record.updated_at,
        _ => false,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
