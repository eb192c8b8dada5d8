//! The two steps of each change: a plan of exact entries, and its task.
mod action;
mod pages;
mod run;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

pub(crate) use self::action::{Action, Entry};
pub(crate) use self::pages::{apply, cancel, plan, task};
use crate::access::User;
use crate::random;

/// The time within which a plan may be applied.
const VALID: Duration = Duration::from_secs(600);
/// The time for which the results of a task are shown.
const KEPT: Duration = Duration::from_secs(3_600);
/// The largest number of plans and tasks.
const MOST: usize = 1_000;

/// The plans and tasks of this console, in memory.
#[derive(Debug, Default)]
pub(crate) struct Plans(Mutex<HashMap<String, Arc<Plan>>>);

/// A change of exact entries that a user has selected.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) id: String,
    pub(crate) by: User,
    pub(crate) action: Action,
    /// The name of the store, queue or outbox.
    pub(crate) target: String,
    pub(crate) entries: Vec<Entry>,
    made: Instant,
    /// The task, once the plan was applied.
    task: Mutex<Option<Arc<Task>>>,
}

/// The progress of an applied plan.
#[derive(Debug, Default)]
pub(crate) struct Task {
    state: Mutex<TaskState>,
    is_cancelled: AtomicBool,
}

/// A snapshot of a task.
#[derive(Clone, Debug, Default)]
pub(crate) struct TaskState {
    /// The subjects with their outcomes, in the order of the task.
    pub(crate) results: Vec<(String, String)>,
    /// The number of entries so far, for a task that reports its results at its end.
    pub(crate) progress: usize,
    pub(crate) is_ended: bool,
    /// The reason why the task ended early.
    pub(crate) error: Option<String>,
}

impl Task {
    pub(crate) fn state(&self) -> TaskState {
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, TaskState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, subject: String, outcome: String) {
        let mut state = self.lock();
        state.results.push((subject, outcome));
        state.progress = state.results.len();
    }

    fn end(&self, error: Option<String>) {
        let mut state = self.lock();
        (state.is_ended, state.error) = (true, error);
    }

    /// Asks the task to end after its current entry.
    pub(crate) fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
    }

    fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed)
    }
}

impl Plan {
    fn is_kept(&self, now: Instant) -> bool {
        let task = self.task();
        let is_running = task.is_some_and(|task| !task.state().is_ended);
        is_running || now - self.made < if self.task().is_some() { KEPT } else { VALID }
    }

    pub(crate) fn task(&self) -> Option<Arc<Task>> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the task of this plan, and true if this call has created the task, so that a second click starts nothing.
    fn start(&self) -> (Arc<Task>, bool) {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = task.is_none();
        (task.get_or_insert_default().clone(), is_first)
    }
}

impl Plans {
    /// Stores a plan and returns it with its id.
    fn add(
        &self,
        by: User,
        action: Action,
        target: String,
        entries: Vec<Entry>,
    ) -> Result<Arc<Plan>, getrandom::Error> {
        let (id, now) = (random::hex()?, Instant::now());
        let plan = Arc::new(Plan { id: id.clone(), by, action, target, entries, made: now, task: Mutex::default() });
        let mut plans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        plans.retain(|_, plan| plan.is_kept(now));
        let oldest = plans.values().min_by_key(|plan| plan.made).map(|plan| plan.id.clone());
        if let Some(oldest) = oldest.filter(|_| plans.len() >= MOST) {
            plans.remove(&oldest);
        }
        plans.insert(id, plan.clone());
        Ok(plan)
    }

    /// Returns a plan of this user, unless it has expired.
    fn get(&self, id: &str, by: &User) -> Option<Arc<Plan>> {
        let plans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        plans.get(id).filter(|plan| plan.by.name == by.name && plan.is_kept(Instant::now())).cloned()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::Role;

    fn add(plans: &Plans, by: &User) -> Arc<Plan> {
        plans.add(by.clone(), Action::Forget, "orders".into(), Vec::new()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_plan_belongs_to_its_user_and_expires() {
        let (plans, ann) = (Plans::default(), User::new("ann", Role::Operator));
        let plan = add(&plans, &ann);
        assert!(plans.get(&plan.id, &ann).is_some());
        assert!(plans.get(&plan.id, &User::new("bob", Role::Admin)).is_none());
        tokio::time::advance(VALID).await;
        assert!(plans.get(&plan.id, &ann).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_starts_once_and_its_results_stay_for_an_hour() {
        let (plans, ann) = (Plans::default(), User::new("ann", Role::Operator));
        let plan = add(&plans, &ann);
        let (task, is_first) = plan.start();
        assert!(is_first && !plan.start().1);
        tokio::time::advance(2 * KEPT).await;
        assert!(plans.get(&plan.id, &ann).is_some(), "the task is running");
        assert!(!task.is_cancelled());
        task.cancel();
        assert!(task.is_cancelled());
        task.end(None);
        assert!(plans.get(&plan.id, &ann).is_none());
    }

    #[test]
    fn the_number_of_plans_is_bounded() {
        let (plans, ann) = (Plans::default(), User::new("ann", Role::Operator));
        for _ in 0..MOST + 10 {
            add(&plans, &ann);
        }
        assert_eq!(plans.0.lock().unwrap().len(), MOST);
    }
}
