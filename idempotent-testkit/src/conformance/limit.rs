//! A time limit for laws: a law that does not end is broken.
#![allow(clippy::panic, clippy::expect_used, reason = "this is the body of a test")]
use std::any::type_name;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use super::Threads;

/// The environment variable with the limit of one law, in seconds of real time.
const LIMIT: &str = "IDEMPOTENT_KIT_LIMIT";

/// The default limit: many times the duration of the slowest law with a slow store.
const USUALLY: Duration = Duration::from_secs(300);

/// A law whose type is erased, so that the runtime is compiled for one type only.
pub(crate) type Law<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Runs the law on a separate runtime.
pub(crate) fn run(name: &str, threads: Threads, law: Law<'_>) {
    run_within(limit(), name, threads, law);
}

fn run_within(limit: Duration, name: &str, threads: Threads, law: Law<'_>) {
    let mut builder = match threads {
        Threads::One => tokio::runtime::Builder::new_current_thread(),
        Threads::Many => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = builder.enable_all().build().expect("a tokio runtime for the law");
    if runtime.block_on(async { tokio::time::timeout(limit, law).await }).is_err() {
        // A call that blocks the law would also block the shutdown of the runtime.
        runtime.shutdown_background();
        panic!(
            "the law `{name}` did not end within {} s: it waits for an answer or a change that never comes. \
             Where the store is only slow, give the races fewer `rounds`, or set {LIMIT} (seconds) higher",
            limit.as_secs_f64()
        );
    }
}

fn limit() -> Duration {
    std::env::var(LIMIT).map_or(USUALLY, |text| {
        let seconds = text.parse().unwrap_or_else(|_| panic!("{LIMIT}={text} is not a number of whole seconds"));
        Duration::from_secs(seconds)
    })
}

/// Returns the last part of a function's path.
pub(super) fn name_of<L>() -> &'static str {
    let path = type_name::<L>();
    path.rsplit("::").find(|part| *part != "{{closure}}").unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn a_law_that_waits_for_ever_is_named_and_ends() {
        for threads in [Threads::One, Threads::Many] {
            let law = AssertUnwindSafe(|| run_within(Duration::from_millis(1), "a_law", threads, Box::pin(pending())));
            let panic = catch_unwind(law).expect_err("nothing ends it but the limit");
            let said = panic.downcast_ref::<String>().expect("a text");
            assert!(said.starts_with("the law `a_law` did not end within 0.001 s"), "{said}");
        }
    }

    #[test]
    fn a_law_is_called_by_its_own_name() {
        async fn a_law() {}
        fn name<L>(_: L) -> &'static str {
            name_of::<L>()
        }
        assert_eq!((name(a_law), name(async || ())), ("a_law", "a_law_is_called_by_its_own_name"));
    }
}
