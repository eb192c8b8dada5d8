//! The command line.
use std::path::PathBuf;
use std::time::Duration;

use crate::weakness::{WEAKNESSES, Weakness};

/// What there is to know.
pub const USAGE: &str = "\
cargo xtask chaos redis [--seconds S] [--seed N] [--history FILE]
                        [--topology single|clock|sentinel|cluster | --store URL] [--calm]

Worker processes run deliveries on a real server, while both are killed, stopped and cut off from each other for S
seconds (60 unless you say otherwise); then everything has to come to an end. The history of it is judged, and written
into FILE.

  --topology   servers of its own: a primary and a replica under three sentinels (the default), one server, one server
               whose clock is set forward now and then, a cluster
  --store      a server of yours (or sqlite:PATH), which is not harmed: only workers are
  --calm       no faults at all; such a run proves nothing, and says so
  --weakness   a guard is taken out of a script: such a run has to be violated

Ends with one JSON object on stdout. Exit code 0: held; 1: violated; 2: vacuous, or not started.";

/// Where the records are.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Topology {
    /// An SQLite file of its own: no server, and no faults of one.
    File,
    /// One Redis.
    Single {
        /// Its clock is set forward now and then.
        clock: bool,
    },
    /// A primary and a replica under three sentinels.
    Sentinel,
    /// Three primaries, each with a replica.
    Cluster,
    /// Somebody else's store.
    Outside(String),
}

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Args {
    /// What is tested: redis, or sqlite.
    pub name: &'static str,
    /// Faults happen for so long.
    pub long: Duration,
    /// What happens.
    pub seed: u64,
    /// The history goes here.
    pub history: Option<PathBuf>,
    /// Where the records are.
    pub topology: Topology,
    /// The store is wrong on purpose.
    pub weakness: Option<&'static Weakness>,
    /// No faults.
    pub calm: bool,
}

impl Args {
    /// Reads the arguments behind `chaos`.
    ///
    /// # Errors
    /// What was not understood, and what would be.
    pub fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut args = Self {
            name: "redis",
            long: Duration::from_secs(60),
            seed: 0,
            history: None,
            topology: Topology::Sentinel,
            weakness: None,
            calm: false,
        };
        let mut rest = arguments.iter().map(String::as_str);
        match rest.next() {
            Some("redis") => {}
            Some("sqlite") => (args.name, args.topology) = ("sqlite", Topology::File),
            Some(other) => return Err(format!("unknown store `{other}`; known here: redis, sqlite")),
            None => return Err("chaos needs one of: redis, sqlite".to_owned()),
        }
        while let Some(name) = rest.next() {
            if name == "--calm" {
                args.calm = true;
                continue;
            }
            if !["--seconds", "--seed", "--history", "--store", "--topology", "--weakness"].contains(&name) {
                return Err(format!("unknown argument `{name}`; the arguments are those below"));
            }
            let value = rest.next().ok_or_else(|| format!("`{name}` stands without a value; give one behind it"))?;
            match name {
                "--seconds" => args.long = seconds(value)?,
                "--seed" => args.seed = number(name, value)?,
                "--history" => args.history = Some(value.into()),
                "--topology" => args.topology = topology(value)?,
                "--weakness" => args.weakness = Some(weakness(value)?),
                _ => args.topology = Topology::Outside(value.to_owned()),
            }
        }
        Ok(args)
    }
}

fn topology(value: &str) -> Result<Topology, String> {
    match value {
        "single" => Ok(Topology::Single { clock: false }),
        "clock" => Ok(Topology::Single { clock: true }),
        "sentinel" => Ok(Topology::Sentinel),
        "cluster" => Ok(Topology::Cluster),
        _ => Err(format!("`--topology {value}`: known here: single, clock, sentinel, cluster")),
    }
}

fn weakness(value: &str) -> Result<&'static Weakness, String> {
    let known = || WEAKNESSES.iter().map(|weakness| weakness.name).collect::<Vec<_>>().join(", ");
    Weakness::named(value).ok_or_else(|| format!("`--weakness {value}`: known here: {}", known()))
}

fn number(name: &str, value: &str) -> Result<u64, String> {
    value
        .parse()
        .map_err(|_| format!("`{name} {value}`: {value:?} is not a whole number from 0 on; write it in digits"))
}

fn seconds(value: &str) -> Result<Duration, String> {
    match number("--seconds", value)? {
        0 => Err("`--seconds 0`: nothing happens in no time; give 1 or more".to_owned()),
        // A day: what runs for longer is no test.
        seconds @ 1..=86_400 => Ok(Duration::from_secs(seconds)),
        _ => Err(format!("`--seconds {value}` is more than a day; give 86400 or less")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Args, String> {
        Args::parse(&arguments.iter().map(|argument| (*argument).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn a_mistake_is_told_with_what_would_be_right() {
        for (arguments, told) in [
            (&[][..], "needs one of: redis"),
            (&["kafka"], "unknown store `kafka`; known here: redis, sqlite"),
            (&["redis", "--sede", "1"], "unknown argument `--sede`"),
            (&["redis", "--seed"], "`--seed` stands without a value"),
            (&["redis", "--seed", "x"], "not a whole number"),
            (&["redis", "--seconds", "0"], "give 1 or more"),
            (&["redis", "--seconds", "86401"], "more than a day"),
        ] {
            assert!(parse(arguments).unwrap_err().contains(told), "{arguments:?}");
        }
    }

    #[test]
    fn what_is_asked_for_is_read() {
        let args = parse(&["redis", "--seconds", "5", "--seed", "7", "--history", "f", "--calm"]).unwrap();
        assert_eq!((args.long.as_secs(), args.seed, args.calm), (5, 7, true));
        assert_eq!(args.history.unwrap().to_str(), Some("f"));
    }
}
