//! Grouping and rate limit of alerts, as functions of (state, alert, now).
use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::{Alert, AlertKind};

/// Limits of [`Groups`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) gather: Duration,
    pub(super) window: Duration,
    pub(super) rate: usize,
    pub(super) groups: usize,
}

/// Alerts of one kind, scope, source and cause are one group.
type Name = (AlertKind, Cow<'static, str>, Option<Cow<'static, str>>, Option<&'static str>);

/// Alerts that wait, and those that were sent within the window.
#[derive(Debug)]
pub(super) struct Groups {
    limits: Limits,
    open: HashMap<Name, Group>,
    /// The times of alerts of any group that were sent within the last window.
    sent: VecDeque<Instant>,
}

#[derive(Debug)]
struct Group {
    /// Alerts since the last one that was sent; `None` if there were none.
    unsent: Option<Alert>,
    due: Instant,
    /// Callers that wait for the group's first alert to be sent.
    waiting: Vec<oneshot::Sender<bool>>,
    is_new: bool,
}

/// The result of raising an alert.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Added {
    /// The alert opened a group.
    New,
    /// The alert is counted in a group whose first alert is not sent yet.
    Joined,
    /// The alert is counted in a group whose first alert was sent within the window.
    Suppressed,
    /// There are too many groups.
    Dropped,
}

/// An alert to be sent, and the callers that wait for it.
#[derive(Debug)]
pub(super) struct Due {
    pub(super) alert: Alert,
    pub(super) waiting: Vec<oneshot::Sender<bool>>,
}

impl Groups {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, open: HashMap::new(), sent: VecDeque::new() }
    }

    /// Adds an alert. `waiting` gets whether it was accepted once it is sent, and is dropped if the limits hold the alert back.
    pub(super) fn add(&mut self, alert: Alert, waiting: Option<oneshot::Sender<bool>>, now: Instant) -> Added {
        let name = (alert.kind, alert.scope.clone(), alert.source.clone(), alert.cause);
        let rests_until = self.rests_until();
        let not_held_back = |due| rests_until.is_none_or(|until| due >= until);
        let Some(group) = self.open.get_mut(&name) else {
            if self.open.len() >= self.limits.groups {
                self.close_quiet(now);
            }
            if self.open.len() >= self.limits.groups {
                return Added::Dropped;
            }
            let due = now + self.limits.gather;
            let waiting = waiting.filter(|_| not_held_back(due)).into_iter().collect();
            self.open.insert(name, Group { unsent: Some(alert), due, waiting, is_new: true });
            return Added::New;
        };
        match &mut group.unsent {
            Some(unsent) => {
                unsent.count = unsent.count.saturating_add(alert.count);
                unsent.last_at = unsent.last_at.max(alert.last_at);
            }
            unsent => *unsent = Some(alert),
        }
        match group.is_new {
            true => {
                group.waiting.extend(waiting.filter(|_| not_held_back(group.due)));
                Added::Joined
            }
            false => Added::Suppressed,
        }
    }

    /// Takes an alert that may be sent now.
    pub(super) fn take(&mut self, now: Instant) -> Option<Due> {
        self.close_quiet(now);
        if let Some(until) = self.rests_until() {
            // The limit may hold these alerts back for a window: no caller waits for that.
            let held_back = self.open.values_mut().filter(|group| group.due < until);
            held_back.for_each(|group| group.waiting.clear());
            return None;
        }
        let first = self.open.iter().filter(|(_, group)| group.unsent.is_some() && group.due <= now);
        let name = first.min_by_key(|(_, group)| group.due).map(|(name, _)| name.clone())?;
        self.sent.push_back(now);
        self.send(&name, now)
    }

    /// Takes all alerts that wait, whatever the limits say.
    pub(super) fn take_all(&mut self, now: Instant) -> Vec<Due> {
        let names: Vec<_> = self.open.keys().cloned().collect();
        names.iter().filter_map(|name| self.send(name, now)).collect()
    }

    /// Returns when [`take`](Self::take) is to be called next.
    pub(super) fn next(&self) -> Option<Instant> {
        let due = self.open.values().map(|group| group.due).min()?;
        Some(self.rests_until().map_or(due, |until| due.max(until)))
    }

    /// Returns when the rate limit allows the next alert, if the limit is reached.
    fn rests_until(&self) -> Option<Instant> {
        let oldest = self.sent.front().filter(|_| self.sent.len() >= self.limits.rate)?;
        Some(*oldest + self.limits.window)
    }

    fn send(&mut self, name: &Name, now: Instant) -> Option<Due> {
        let window = self.limits.window;
        let group = self.open.get_mut(name)?;
        let alert = group.unsent.take()?;
        (group.due, group.is_new) = (now + window, false);
        Some(Due { alert, waiting: std::mem::take(&mut group.waiting) })
    }

    /// Forgets what lies a window back.
    fn close_quiet(&mut self, now: Instant) {
        self.open.retain(|_, group| group.unsent.is_some() || group.due > now);
        while self.sent.front().is_some_and(|sent| *sent + self.limits.window <= now) {
            self.sent.pop_front();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tokio::sync::oneshot::error::TryRecvError;

    use super::*;
    use crate::{Clock, SystemClock, Timestamp};

    const WINDOW: Duration = Duration::from_secs(300);
    const GATHER: Duration = Duration::from_secs(5);

    fn alert(scope: &'static str, at: u64) -> Alert {
        Alert::new(AlertKind::DeadLetter, scope, Timestamp(at))
    }

    fn groups(rate: usize, groups: usize) -> (Groups, Instant) {
        (Groups::new(Limits { gather: GATHER, window: WINDOW, rate, groups }), SystemClock::new().now())
    }

    #[test]
    fn a_group_is_sent_after_the_gathering_time_with_its_count_and_times() {
        let (mut groups, start) = groups(10, 10);
        assert_eq!(groups.add(alert("a", 1), None, start), Added::New);
        for at in 2..=10 {
            assert_eq!(groups.add(alert("a", at), None, start + GATHER / 2), Added::Joined);
        }
        assert!(groups.take(start + GATHER - Duration::from_nanos(1)).is_none());
        assert_eq!(groups.next(), Some(start + GATHER));
        let sent = groups.take(start + GATHER).unwrap().alert;
        assert_eq!((sent.count, sent.first_at, sent.last_at), (10, Timestamp(1), Timestamp(10)));
        assert!(groups.take(start + GATHER).is_none());
    }

    #[test]
    fn what_is_suppressed_within_the_window_is_one_alert_at_its_end() {
        let (mut groups, start) = groups(10, 10);
        groups.add(alert("a", 1), None, start);
        assert!(groups.take(start + GATHER).is_some());
        let end = start + GATHER + WINDOW;
        for at in 2..=4 {
            assert_eq!(groups.add(alert("a", at), None, end - GATHER), Added::Suppressed);
        }
        assert!(groups.take(end - Duration::from_nanos(1)).is_none());
        assert_eq!(groups.take(end).unwrap().alert.count, 3);
        // A window without an alert closes the group: the next alert is a new one.
        assert!(groups.take(end + WINDOW).is_none());
        assert_eq!((groups.next(), groups.add(alert("a", 9), None, end + WINDOW)), (None, Added::New));
    }

    #[test]
    fn groups_over_the_rate_wait_until_the_oldest_alert_leaves_the_window() {
        let (mut groups, start) = groups(2, 10);
        for scope in ["a", "b", "c"] {
            groups.add(alert(scope, 1), None, start);
        }
        let now = start + GATHER;
        assert!(groups.take(now).is_some() && groups.take(now).is_some() && groups.take(now).is_none());
        assert_eq!(groups.next(), Some(now + WINDOW));
        assert!(groups.take(now + WINDOW).is_some());
    }

    #[test]
    fn no_caller_waits_for_an_alert_that_the_rate_holds_back() {
        let (mut groups, start) = groups(1, 10);
        let add = |groups: &mut Groups, scope, at| {
            let (sender, receiver) = oneshot::channel();
            groups.add(alert(scope, 1), Some(sender), at);
            receiver
        };
        let is_dropped = |waiting: &mut oneshot::Receiver<bool>| waiting.try_recv() == Err(TryRecvError::Closed);
        let (mut first, mut second) = (add(&mut groups, "a", start), add(&mut groups, "b", start + GATHER / 2));
        let sent = groups.take(start + GATHER).unwrap();
        assert!(groups.take(start + GATHER).is_none() && !is_dropped(&mut first) && is_dropped(&mut second));
        // One that comes later, and one that joins a group.
        let mut third = add(&mut groups, "c", start + GATHER);
        let mut fourth = add(&mut groups, "c", start + GATHER);
        assert!(is_dropped(&mut third) && is_dropped(&mut fourth));
        // All of them are sent once the limit allows it.
        let rest = [1, 2].map(|window| groups.take(start + GATHER + WINDOW * window).unwrap().alert.count);
        assert_eq!((sent.alert.count, rest), (1, [1, 2]));
    }

    #[test]
    fn alerts_of_more_groups_than_the_limit_are_dropped_and_others_are_counted() {
        let (mut groups, start) = groups(10, 1);
        groups.add(alert("a", 1), None, start);
        assert_eq!(groups.add(alert("b", 1), None, start), Added::Dropped);
        assert_eq!(groups.add(alert("a", 2), None, start), Added::Joined);
        assert!(groups.take(start + GATHER).is_some());
        // A group that is over makes room.
        assert_eq!(groups.add(alert("b", 1), None, start + GATHER + WINDOW), Added::New);
    }

    #[test]
    fn causes_scopes_and_sources_are_separate() {
        let (mut groups, start) = groups(10, 10);
        let alerts = [alert("a", 1), alert("b", 1), alert("a", 1).source("q"), alert("a", 1).cause("x")];
        assert!(alerts.into_iter().all(|alert| groups.add(alert, None, start) == Added::New));
        assert_eq!(groups.take_all(start).len(), 4);
        assert!(groups.take_all(start).is_empty());
    }
}
