//! Alternating rounds of the library and of the floor, and the output: one JSON object per figure with `--json`, a table without.
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;

pub struct Report {
    bench: &'static str,
    json: bool,
    /// True in `cargo test`, unlike in `cargo bench`: each case runs once, as a test.
    tried: bool,
    /// If set, only cases whose "store case" contains this text.
    only: Option<String>,
}

/// A figure, with the name that design and documents use.
#[derive(Serialize)]
pub struct Line {
    pub bench: &'static str,
    pub case: String,
    pub store: Option<&'static str>,
    pub concurrency: Option<usize>,
    pub unit: &'static str,
    pub value: f64,
    pub floor: Option<f64>,
    /// value / floor
    pub ratio: Option<f64>,
    pub goal: Option<String>,
    pub met: Option<bool>,
}

/// The goal of a figure.
#[derive(Clone, Copy, Debug)]
pub enum Goal {
    None,
    AtMost(f64),
    AtLeast(f64),
}

/// The medians over the rounds.
#[derive(Clone, Copy)]
pub struct Pair {
    pub value: f64,
    pub floor: f64,
    pub ratio: f64,
}

impl Pair {
    /// Returns the medians of the values and floors of each round, and of their ratios.
    pub fn medians(rounds: &[(f64, f64)]) -> Self {
        let median = |figure: fn(&(f64, f64)) -> f64| median(rounds.iter().map(figure).collect());
        Self {
            value: median(|round| round.0),
            floor: median(|round| round.1),
            ratio: median(|round| round.0 / round.1),
        }
    }

    /// Returns runs per second, from ns per run.
    pub fn rates(self) -> Self {
        Self { value: 1e9 / self.value, floor: 1e9 / self.floor, ratio: 1.0 / self.ratio }
    }
}

impl Report {
    /// `cargo bench` adds `--bench`.
    pub fn from_args(bench: &'static str) -> Self {
        let mut arguments: Vec<_> = std::env::args().skip(1).collect();
        let tried = !arguments.iter().any(|argument| argument == "--bench");
        arguments.retain(|argument| argument != "--bench");
        let json = arguments.iter().any(|argument| argument == "--json");
        let only = arguments.into_iter().find(|argument| !argument.starts_with('-'));
        Self { bench, json, tried, only }
    }

    /// Prints the header above the first figure.
    pub fn title(&self) {
        if self.tried {
            println!("each case once, to see that it works; `cargo xtask bench {}` measures", self.bench);
        } else if !self.json {
            println!("{:52} {:>15} {:>12} {:>8}  {:9} met", self.bench, "value", "floor", "ratio", "goal");
        }
    }

    /// Returns the number of keys in a measured store.
    pub fn keys(&self) -> u64 {
        if self.tried { 2_000 } else { 1_000_000 }
    }

    /// Returns whether this is `cargo test`: each case runs once, quickly.
    #[allow(dead_code, reason = "not every bench has a use for it")]
    pub fn is_tried(&self) -> bool {
        self.tried
    }

    /// Returns the number and the size of the rounds of a figure.
    pub fn rounds(&self, rounds: u64, operations: u64, tasks: u64) -> Rounds {
        if self.tried { Rounds { rounds: 1, operations: 128, tasks } } else { Rounds { rounds, operations, tasks } }
    }

    pub fn wants(&self, store: &str, case: &str) -> bool {
        self.only.as_deref().is_none_or(|only| format!("{store} {case}").contains(only))
    }

    /// Reports a figure with its floor. The goal applies to the ratio.
    pub fn pair(&self, at: (&'static str, &str, Option<usize>), unit: &'static str, pair: Pair, goal: Goal) {
        let (floor, ratio) = (Some(pair.floor), Some(pair.ratio));
        self.line(at, unit, pair.value, floor, ratio, goal);
    }

    /// Reports a figure without a floor.
    pub fn value(&self, at: (&'static str, &str, Option<usize>), unit: &'static str, value: f64, goal: Goal) {
        self.line(at, unit, value, None, None, goal);
    }

    fn line(
        &self,
        (store, case, concurrency): (&'static str, &str, Option<usize>),
        unit: &'static str,
        value: f64,
        floor: Option<f64>,
        ratio: Option<f64>,
        goal: Goal,
    ) {
        let (store, case) = ((!store.is_empty()).then_some(store), case.to_owned());
        let (goal, met) = goal.judge(ratio.unwrap_or(value));
        if self.tried {
            return println!("works: {} {case}", store.unwrap_or("executor"));
        }
        let line = Line { bench: self.bench, case, store, concurrency, unit, value, floor, ratio, goal, met };
        if self.json {
            println!("{}", serde_json::to_string(&line).unwrap());
        } else {
            println!("{}", line.row());
        }
    }
}

impl Goal {
    fn judge(self, figure: f64) -> (Option<String>, Option<bool>) {
        match self {
            Self::None => (None, None),
            Self::AtMost(most) => (Some(format!("<= {most}")), Some(figure <= most)),
            Self::AtLeast(least) => (Some(format!(">= {least}")), Some(figure >= least)),
        }
    }
}

impl Line {
    fn row(&self) -> String {
        let at = self.concurrency.map_or_else(String::new, |tasks| format!(", {tasks} at once"));
        let name = format!("{} {}{at}", self.store.unwrap_or("executor"), self.case);
        let number = |figure: f64| match figure {
            _ if figure >= 100.0 => format!("{figure:.0}"),
            _ => format!("{figure:.2}"),
        };
        let floor = self.floor.map_or_else(String::new, number);
        let ratio = self.ratio.map_or_else(String::new, |ratio| format!("{ratio:.4}"));
        let met = self.met.map_or("", |met| if met { "yes" } else { "NO" });
        let value = format!("{} {}", number(self.value), self.unit);
        format!("{name:52} {value:>15} {floor:>12} {ratio:>8}  {:9} {met}", self.goal.as_deref().unwrap_or(""))
    }
}

pub fn nanos(time: Duration, operations: u64) -> f64 {
    time.as_secs_f64() * 1e9 / operations as f64
}

/// Runs the operations `from..from + operations` in `tasks` tasks, and returns the total time.
pub async fn drive<F, Fut>(tasks: u64, from: u64, operations: u64, operation: &Arc<F>) -> Duration
where
    F: Fn(u64) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = ()> + Send,
{
    let start = Instant::now();
    let tasks: Vec<_> = (0..tasks)
        .map(|task| {
            let operation = operation.clone();
            let own = (from + task..from + operations).step_by(usize::try_from(tasks).unwrap());
            tokio::spawn(async move {
                for number in own {
                    operation(number).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    start.elapsed()
}

/// The size of a measurement.
#[derive(Clone, Copy)]
pub struct Rounds {
    pub rounds: u64,
    pub operations: u64,
    pub tasks: u64,
}

impl Rounds {
    /// Returns the ns of each operation, of the library and of the floor. Numbers continue from round to round.
    pub async fn nanos<F, Fut, G, Gut>(self, from: u64, ours: F, floor: G) -> Pair
    where
        F: Fn(u64) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send,
        G: Fn(u64) -> Gut + Send + Sync + 'static,
        Gut: Future<Output = ()> + Send,
    {
        let (ours, floor) = (Arc::new(ours), Arc::new(floor));
        let mut pairs = Vec::new();
        for round in 0..self.rounds {
            let at = from + round * self.operations;
            // The second one finds a warm processor, so the order alternates.
            let (value, bare) = if round % 2 == 0 {
                let value = drive(self.tasks, at, self.operations, &ours).await;
                (value, drive(self.tasks, at, self.operations, &floor).await)
            } else {
                let bare = drive(self.tasks, at, self.operations, &floor).await;
                (drive(self.tasks, at, self.operations, &ours).await, bare)
            };
            pairs.push((nanos(value, self.operations), nanos(bare, self.operations)));
        }
        Pair::medians(&pairs)
    }
}

/// Returns the order of the modes in a round: each is first sometimes, and runs before and after each other mode.
#[allow(dead_code, reason = "not every bench has a use for it")]
pub fn turns(round: usize, modes: usize) -> impl Iterator<Item = usize> {
    (0..modes).map(move |turn| {
        let at = (turn + round) % modes;
        if (round / modes).is_multiple_of(2) { at } else { modes - 1 - at }
    })
}

pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
