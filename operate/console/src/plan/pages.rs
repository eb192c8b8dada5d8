//! The pages of plans and tasks.
use std::num::NonZeroU32;
use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use serde::Serialize;

use super::run::{self, Order};
use super::{Action, Entry};
use crate::error::PageError;
use crate::form::UserForm;
use crate::pages::{Layout, Page, html, shown, theme};
use crate::state::Shared;

/// The largest number of entries of a plan.
const MOST: usize = 1_000;
/// The number of entries from which on the user types their number.
const TYPED: usize = 100;
/// The longest reason in bytes.
const LONGEST: usize = 4_096;

#[derive(Template)]
#[template(path = "plan.html")]
struct PlanView {
    layout: Layout,
    id: String,
    action: &'static str,
    target: String,
    effect: &'static str,
    entries: Vec<String>,
    is_of_letters: bool,
    can_let_go: bool,
    must_type: bool,
}

/// Shows the plan of the selected entries. Changes nothing.
pub(crate) async fn plan(State(shared): State<Arc<Shared>>, form: UserForm) -> Result<Response, PageError> {
    let fields = &form.fields;
    let action =
        Action::parse(fields.get("action")).ok_or_else(|| PageError::Invalid("this action is unknown".into()))?;
    if form.visitor.user.role < action.role() {
        return Err(PageError::Forbidden);
    }
    let entries: Option<Vec<Entry>> = fields.all("entry").map(|entry| Entry::parse(action, entry)).collect();
    let entries = entries.ok_or_else(|| PageError::Invalid("an entry is malformed".into()))?;
    if entries.is_empty() || entries.len() > MOST {
        return Err(PageError::Invalid(format!("select 1 to {MOST} entries")));
    }
    let target = fields.get("target");
    let can_let_go = check_target(&shared, action, target)?;
    let plan = shared.plans.add(form.visitor.user.clone(), action, target.to_owned(), entries)?;
    let view = PlanView {
        layout: Layout::new("Plan", &shared, &form.visitor, theme(&form.parts.headers)),
        id: plan.id.clone(),
        action: action.name(),
        target: shown(target),
        effect: action.effect(),
        entries: plan.entries.iter().map(|entry| shown(entry.subject())).collect(),
        is_of_letters: action.is_of_letters(),
        can_let_go: can_let_go && action == Action::Redrive,
        must_type: plan.entries.len() > TYPED,
    };
    Ok(html(&view))
}

/// Returns whether the target exists and has a store whose keys a redrive can free.
fn check_target(shared: &Shared, action: Action, name: &str) -> Result<bool, PageError> {
    let targets = &shared.targets;
    if action.is_of_keys() {
        return targets.stores.find(name).map(|_| false);
    }
    if action.is_of_letters() {
        return targets.queues.find(name).map(|queue| queue.store.is_some());
    }
    #[cfg(feature = "__outbox")]
    return targets.outboxes.find(name).map(|_| false);
    #[cfg(not(feature = "__outbox"))]
    Err(PageError::NoTarget)
}

/// Starts the task of a plan, and leads to its page. A second request leads to the same page and starts nothing.
pub(crate) async fn apply(State(shared): State<Arc<Shared>>, form: UserForm) -> Result<Response, PageError> {
    let fields = &form.fields;
    let user = &form.visitor.user;
    let plan = shared.plans.get(fields.get("plan"), user).ok_or(PageError::Stale)?;
    if user.role < plan.action.role() {
        return Err(PageError::Forbidden);
    }
    let reason = fields.get("reason").trim();
    if reason.is_empty() || reason.len() > LONGEST || reason.contains(char::is_control) {
        let rule = format!("give a reason of 1 to {LONGEST} bytes without control characters");
        return Err(PageError::Invalid(rule));
    }
    let count = plan.entries.len();
    if count > TYPED && fields.get("count").trim() != count.to_string() {
        return Err(PageError::Invalid(format!("type the number of entries, {count}, to confirm the plan")));
    }
    let rate = match fields.get("rate").trim() {
        "" => Some(10),
        text => text.parse::<u32>().ok().filter(|rate| *rate <= 1_000),
    };
    let rate = rate.and_then(NonZeroU32::new);
    let rate = rate.ok_or_else(|| PageError::Invalid("`rate` is a number from 1 to 1000".into()))?;
    let order = Order { reason: reason.to_owned(), rate, lets_go: !fields.get("let_go").is_empty() };
    let (task, is_first) = plan.start();
    if is_first {
        // Goes on if the client disconnects.
        tokio::spawn(run::run(shared.clone(), plan.clone(), task, order));
    }
    Ok(Redirect::to(&format!("task?id={}", plan.id)).into_response())
}

#[derive(Template, Serialize)]
#[template(path = "task.html")]
struct TaskView {
    #[serde(skip)]
    layout: Layout,
    #[serde(skip)]
    id: String,
    action: &'static str,
    target: String,
    total: usize,
    progress: usize,
    /// The subjects with their outcomes.
    results: Vec<(String, String)>,
    is_ended: bool,
    error: Option<String>,
}

/// Shows the progress and the results of a task.
pub(crate) async fn task(page: Page) -> Result<Response, PageError> {
    let plan = page.shared.plans.get(page.query.get("id"), &page.visitor.user).ok_or(PageError::Stale)?;
    let state = plan.task().ok_or(PageError::Stale)?.state();
    let view = TaskView {
        layout: page.layout("Task"),
        id: plan.id.clone(),
        action: plan.action.name(),
        target: shown(&plan.target),
        total: plan.entries.len(),
        progress: state.progress,
        results: state.results.iter().map(|(subject, outcome)| (shown(subject), shown(outcome))).collect(),
        is_ended: state.is_ended,
        error: state.error.as_deref().map(shown),
    };
    Ok(page.answer(&view))
}

/// Asks a task to end after its current entry.
pub(crate) async fn cancel(State(shared): State<Arc<Shared>>, form: UserForm) -> Result<Response, PageError> {
    let plan = shared.plans.get(form.fields.get("id"), &form.visitor.user).ok_or(PageError::Stale)?;
    plan.task().ok_or(PageError::Stale)?.cancel();
    Ok(Redirect::to(&format!("task?id={}", plan.id)).into_response())
}
