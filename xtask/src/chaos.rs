//! The command `cargo xtask chaos`: real processes on a real server, under faults. The harness parses its own arguments
//! and prints its own results.
use std::process::ExitCode;

/// The command of the harness, without optimisation: the harness mostly waits for others, and tests have already built it.
const HARNESS: [&str; 7] = ["run", "--quiet", "--locked", "--package", "idempotent-chaos", "--bin", "idempotent-chaos"];

pub(crate) fn run(arguments: &[String]) -> ExitCode {
    let features = features(arguments).flat_map(|feature| ["--features", feature]).collect::<Vec<_>>();
    crate::sim::pass_on(&[&HARNESS[..], &features].concat(), arguments)
}

/// The features of the harness for clients that take minutes to build.
const CLIENTS: [&str; 3] = ["kafka", "rocketmq", "sqs"];

/// Returns the features of the harness for these arguments. Only a play that needs a slow client builds it.
fn features(arguments: &[String]) -> impl Iterator<Item = &'static str> {
    let play = arguments.first();
    let broker = arguments.windows(2).find(|pair| pair[0] == "--broker").map(|pair| &pair[1]);
    let is_needed = move |feature: &&str| [play, broker].iter().flatten().any(|name| name.starts_with(feature));
    CLIENTS.into_iter().filter(is_needed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_play_builds_only_the_slow_client_that_it_needs() {
        let of = |arguments: &[&str]| {
            let arguments: Vec<_> = arguments.iter().map(|word| (*word).to_owned()).collect();
            features(&arguments).collect::<Vec<_>>()
        };
        assert_eq!(of(&["nats", "--seconds", "60"]), Vec::<&str>::new());
        assert_eq!(of(&["kafka-retry-topic"]), ["kafka"]);
        assert_eq!(of(&["outbox", "--broker", "rocketmq"]), ["rocketmq"]);
        assert_eq!(of(&["sqs"]), ["sqs"]);
        assert_eq!(of(&["nats", "--history", "kafka.jsonl"]), Vec::<&str>::new());
    }
}
