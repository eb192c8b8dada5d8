//! The stop budget of a process. `guides/shutting-down.md` explains the formula.
use std::time::Duration;

use crate::process::Process;

/// The last calls of a consumer after its grace period.
const LAST_CALLS: Duration = Duration::from_secs(2);
/// The end of the process after its drain.
const EXIT: Duration = Duration::from_secs(1);
/// The time for which a platform waits in addition.
const MARGIN: Duration = Duration::from_secs(5);

/// Returns a complaint if the platform kills a process before its stop budget ends.
pub(crate) fn complaints(process: &Process) -> Option<String> {
    let place = &process.place;
    let role = process.arguments.first().filter(|_| process.program == "order_service")?;
    let budget = match role.as_str() {
        "serve" => set(process, "--grace"),
        "relay" => set(process, "--lease"),
        "work" => set(process, "--grace").and_then(|grace| Some(grace + LAST_CALLS + set(process, "--drain")?)),
        _ => return None,
    };
    let Some(budget) = budget else {
        return Some(format!("{place}: the arguments do not set the times of the stop budget"));
    };
    let needed = process.pre_stop + budget + EXIT + MARGIN;
    match process.grace {
        None => Some(format!("{place}: the sample sets no grace period; the stop budget needs {needed:?}")),
        Some(grace) if grace < needed => {
            Some(format!("{place}: the grace period is {grace:?}, and the stop budget needs {needed:?}"))
        }
        Some(_) => None,
    }
}

fn set(process: &Process, option: &str) -> Option<Duration> {
    humantime::parse_duration(process.values(option).next()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(grace: u64, pre_stop: u64, arguments: &[&str]) -> Process {
        Process {
            program: "order_service".into(),
            arguments: arguments.iter().map(|&argument| argument.into()).collect(),
            grace: Some(Duration::from_secs(grace)),
            pre_stop: Duration::from_secs(pre_stop),
            ..Process::default()
        }
    }

    #[test]
    fn a_grace_period_covers_the_sum_of_the_times_and_a_margin() {
        for (role, needed) in [
            (&["work", "--grace=10s", "--drain", "5s"][..], 23),
            (&["relay", "--lease=60s"], 66),
            (&["serve", "--grace=30s"], 36),
        ] {
            assert_eq!(complaints(&worker(needed, 0, role)), None, "{role:?}");
            assert!(complaints(&worker(needed - 1, 0, role)).is_some(), "{role:?}");
            assert!(complaints(&worker(needed, 1, role)).is_some(), "{role:?}");
        }
        assert!(complaints(&worker(100, 0, &["work", "--grace=10s"])).is_some(), "an unset time");
        assert!(complaints(&Process { grace: None, ..worker(0, 0, &["serve", "--grace=1s"]) }).is_some());
        assert_eq!(complaints(&worker(0, 0, &["migrate"])), None);
    }
}
