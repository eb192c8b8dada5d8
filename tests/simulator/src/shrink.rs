//! Reduction of a failing plan to the smallest plan that still fails.
use super::plan::{Delivery, Plan, Run};

/// Removes everything from `plan` that `fails` does not need, in pieces of decreasing size, until no piece can be
/// removed. `fails` plays a plan and returns whether it still fails. It is called about a hundred times for the plan of
/// a seed.
#[must_use]
pub fn shrink(plan: &Plan, fails: impl Fn(&Plan) -> bool) -> Plan {
    let mut small = plan.clone();
    loop {
        let before = small.clone();
        small = fewer(small, &fails, |plan| &mut plan.mischief);
        small = fewer(small, &fails, |plan| &mut plan.faults);
        small = fewer_deliveries(small, &fails);
        for delivery in 0..small.deliveries.len() {
            small = shorter(small, &fails, delivery);
        }
        small = fewer_workers(small, &fails);
        for simpler in [|plan: &mut Plan| plan.fenced = false, |plan: &mut Plan| plan.fingerprints = false] {
            let mut tried = small.clone();
            simpler(&mut tried);
            small = better(small, tried, &fails);
        }
        if small == before {
            return small;
        }
    }
}

fn better(old: Plan, new: Plan, fails: &impl Fn(&Plan) -> bool) -> Plan {
    if new != old && fails(&new) { new } else { old }
}

/// Removes halves, quarters and smaller parts of a list.
fn fewer<T: Clone>(mut small: Plan, fails: &impl Fn(&Plan) -> bool, list: fn(&mut Plan) -> &mut Vec<T>) -> Plan {
    let mut size = list(&mut small).len().max(1);
    loop {
        let mut at = 0;
        while at < list(&mut small).len() {
            let mut tried = small.clone();
            let all = list(&mut tried);
            all.drain(at..(at + size).min(all.len()));
            if fails(&tried) {
                small = tried;
            } else {
                at += size;
            }
        }
        if size == 1 {
            return small;
        }
        size = size.div_ceil(2);
    }
}

/// Removes deliveries. The number of a delivery matters, so unneeded deliveries are first moved to a time after the
/// end.
fn fewer_deliveries(mut small: Plan, fails: &impl Fn(&Plan) -> bool) -> Plan {
    for at in (0..small.deliveries.len()).rev() {
        let mut tried = small.clone();
        tried.deliveries.remove(at);
        small = better(small, tried, fails);
    }
    small
}

/// Replaces runs by runs that succeed.
fn shorter(mut small: Plan, fails: &impl Fn(&Plan) -> bool, delivery: usize) -> Plan {
    while let Some(Delivery { runs, .. }) = small.deliveries.get(delivery) {
        if runs.is_empty() {
            return small;
        }
        let mut tried = small.clone();
        tried.deliveries[delivery].runs.pop();
        if !fails(&tried) {
            break;
        }
        small = tried;
    }
    for nth in 0..small.deliveries[delivery].runs.len() {
        let simpler: [fn(&mut Run); 7] = [
            |run| *run = Run { worker: run.worker, ..Run::default() },
            |run| run.batch = 0,
            |run| run.inner = false,
            |run| run.polite = false,
            |run| run.before_us = 0,
            |run| run.after_us = 0,
            |run| run.again_us = 0,
        ];
        for simpler in simpler {
            let mut tried = small.clone();
            simpler(&mut tried.deliveries[delivery].runs[nth]);
            small = better(small, tried, fails);
        }
    }
    small
}

/// Removes workers from the end, so that the others keep their numbers.
fn fewer_workers(mut small: Plan, fails: &impl Fn(&Plan) -> bool) -> Plan {
    while small.workers.len() > 1 {
        let mut tried = small.clone();
        tried.workers.pop();
        if !fails(&tried) {
            break;
        }
        small = tried;
    }
    small
}
