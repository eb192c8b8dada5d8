//! Requirements for each store of several processes.
use idempotent::mq::DeadLetters;
use idempotent::store::{KeyFilter, PageLimits, RecordEntry, State, StateKind};

use crate::consume::options;
use crate::consume::support::{Ended, Job};
use crate::wait::until;

/// Two processes over one store; then it is killed and comes back, and knows every key.
pub(crate) fn two_processes_share_the_work_and_a_restart_replays_all(
    url: &str,
    shown: &str,
    kill_and_restart: impl FnOnce(),
) {
    let job = Job::new();
    let on = ["--store", url, "--json"];
    let jobs = ["a", "b"].map(|_| job.spawn(&[&on[..], &["--slow-ms", "5"]].concat()));
    let ended = jobs.map(|running| running.ended().exits(0));
    let sums = ended.each_ref().map(|ended| ended.counts(["deliveries", "executed"]));
    assert_eq!(sums.map(|[deliveries, _]| deliveries), [494, 494]);
    assert_eq!(sums.map(|[_, executed]| executed).iter().sum::<u64>(), 287, "{sums:?}");
    job.assert_each_key_once();

    kill_and_restart();
    let again = job.run(&on).exits(0);
    assert_eq!(again.counts(["executed", "replayed"]), [0, 494]);
    assert!(again.stderr.contains("nothing ran: the store knows every key"), "{}", again.stderr);
    let told = job.run(&on[..2]).exits(0);
    assert!(told.stdout.contains(&format!("store    {shown}\n")), "{}", told.stdout);
    for text in [&told.stdout, &told.stderr, &again.stderr] {
        assert!(!text.contains("hunter2"), "{text}");
    }
}

/// Kills a process with its workers in their handlers. Returns the result of the next process, and its number of
/// effects.
pub(crate) fn a_killed_process_costs_a_lease_and_at_most_one_effect_a_worker(store: &[&str]) -> (Ended, usize) {
    const WORKERS: usize = 4;
    let (job, workers) = (Job::new(), WORKERS.to_string());
    let on = [store, &["--json", "--workers", &workers]].concat();
    // Slow, so that the kill meets workers in their handlers.
    let running = job.spawn(&[&on[..], &["--slow-ms", "200"]].concat());
    until("some effects", || job.try_effects().is_some_and(|rows| rows.len() >= 12));
    // Between two handlers, a worker holds no key. The process is therefore killed while it is stopped.
    let file = format!("sqlite:{}", job.path("store.db").display());
    let url = store.get(1).copied().unwrap_or(&file);
    until("a stopped process that holds keys", || {
        running.signal("-STOP");
        let holds = !consuming(url).is_empty();
        if !holds {
            running.signal("-CONT");
        }
        holds
    });
    running.kill();
    let before = job.effects();
    assert!(before.len() < 287);

    let second = job.run(&on).exits(0);
    let held = second.stderr.lines().find_map(|line| line.split_once(" keys held by a dead worker, free in "));
    let (held, free) = held.unwrap_or_else(|| panic!("nothing said of held keys: {}", second.stderr));
    assert!((1..=WORKERS).contains(&held.parse::<usize>().unwrap()), "{held}");
    assert!(free.strip_suffix(" s").unwrap().parse::<u64>().unwrap() <= 5, "{free}");
    let effects = job.effects();
    assert_eq!(effects.len(), 287);
    let twice = effects.values().filter(|rows| **rows > 1).count();
    assert!(twice <= WORKERS, "{twice} keys with more than one effect");
    assert!(effects.values().all(|rows| *rows <= 2));
    (second, effects.values().sum::<usize>() - before.values().sum::<usize>())
}

/// Returns the ends of the leases of all consuming keys, and none if the store cannot be read.
pub(crate) fn consuming(url: &str) -> Vec<u64> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let found = runtime.block_on(async {
        // A store that only reads does not wait for a lock of the stopped process.
        let store = idempotent::connect(url).read_only(true).await.ok()?;
        let filter = KeyFilter::of_states(&[StateKind::Consuming]);
        let page = store.capabilities().search?.search(&filter, None, PageLimits::default()).await.ok()?;
        Some(page.entries)
    });
    let lease = |entry: &RecordEntry| match entry.record.state {
        State::Consuming { until, .. } => Some(until.0),
        _ => None,
    };
    found.iter().flatten().filter_map(lease).collect()
}

/// Checks that a fresh start forgets the keys and runs the job again.
pub(crate) fn a_fresh_start_runs_all_again(url: &str) {
    let job = Job::new();
    let on = ["--store", url, "--json"];
    assert_eq!(job.run(&on).exits(0).counts(["executed", "replayed"]), [287, 207], "{url}");
    assert_eq!(job.run(&on).exits(0).counts(["executed", "replayed"]), [0, 494], "{url}");
    assert_eq!(job.run(&[&["--fresh"], &on[..]].concat()).exits(0).counts(["executed"]), [287], "{url}");
    job.assert_each_key_once();
}

/// Consumes the real data from a broker that may deliver a message twice. `published` is a part of the report.
#[allow(dead_code, reason = "for brokers that are features")]
pub(crate) fn the_messages_of_a_broker_have_the_effects_that_the_file_has(source: &str, idle: &str, published: &str) {
    let file = Job::new();
    file.run(&["--json"]).exits(0);
    let job = Job::new();
    let run = |more: &[&str]| job.run(&[&["--json", "--source", source, "--idle", idle], more].concat());
    let first = run(&["--publish", "in.jsonl", "--fail-every", "3"]).exits(0);
    let [deliveries, others @ ..] =
        first.counts(["deliveries", "distinct_keys", "executed", "failed", "dead", "malformed"]);
    assert!(deliveries >= 494, "{deliveries}");
    assert_eq!(others, [287, 287, 143, 0, 0]);
    let published = format!("494 messages published from in.jsonl to the {published}");
    assert!(first.stderr.contains(&published), "{}", first.stderr);
    assert_eq!(job.effects(), file.effects());
    let second = run(&[]).exits(0);
    assert_eq!(second.counts(["deliveries"]), [0], "all messages are settled");
    let again = run(&["--publish", "in.jsonl"]).exits(0);
    let [deliveries, executed] = again.counts(["deliveries", "executed"]);
    assert!(deliveries >= 494 && executed == 0, "{deliveries} {executed}");
    assert_eq!(job.effects(), file.effects());
}

#[allow(dead_code, reason = "for brokers that are features")]
pub(crate) async fn an_invalid_delivery_is_dead_lettered_byte_for_byte(
    source: &str,
    idle: &str,
    mut letters: impl DeadLetters,
) {
    let job = Job::over(b"{\"delivery_id\":\"a\"}\n\nwhat?\xff\r\n{\"delivery_id\":\"a\"}\n");
    let ended = job.run(&["--json", "--source", source, "--publish", "in.jsonl", "--idle", idle]).exits(1);
    assert_eq!(ended.counts(["deliveries", "executed", "malformed"]), [3, 1, 1]);
    assert_eq!(letters.count().await.unwrap(), 1);
    assert_eq!(letters.next().await.unwrap().unwrap().delivery.body, b"what?\xff\r");
}

/// Checks that each source is refused with these parts.
#[allow(dead_code, reason = "for brokers that are features")]
pub(crate) fn sources_are_refused(sources: &[(&str, &[&str])]) {
    for (source, parts) in sources {
        options::refused(&["--source", source], parts);
    }
}
