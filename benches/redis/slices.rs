//! Alternating slices of several modes.
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use idempotent_harness::servers::RedisServer;

use crate::cpu;
use crate::report::{Pair, Report, turns};

/// A mode, which runs for the time of a `Slice` and returns the number of operations.
pub type Mode = Box<dyn Fn(Slice) -> Pin<Box<dyn Future<Output = u64> + Send>> + Send + Sync>;

/// The parameters of a mode.
#[derive(Clone)]
pub struct Slice {
    pub tasks: usize,
    /// The first number of this slice, which has [`EACH`] numbers for each task.
    pub from: u64,
    /// The length, for work in other processes, which do not see the end.
    #[allow(dead_code, reason = "the bench of the peers uses it")]
    pub length: Duration,
    over: Arc<AtomicBool>,
}

/// More numbers than one task uses in a slice.
pub const EACH: u64 = 1_000_000;

impl Slice {
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

/// Creates a mode whose tasks run operations one after the other.
pub fn tasks<F, Fut>(operation: F) -> Mode
where
    F: Fn(u64) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = ()> + Send,
{
    let operation = Arc::new(operation);
    Box::new(move |slice| {
        let operation = operation.clone();
        Box::pin(async move {
            let task = |task: u64| {
                let (operation, slice) = (operation.clone(), slice.clone());
                tokio::spawn(async move {
                    let mut done = 0;
                    while !slice.is_over() {
                        operation(slice.from + task * EACH + done).await;
                        done += 1;
                        // A task that never waits would block its thread and the timer.
                        tokio::task::consume_budget().await;
                    }
                    done
                })
            };
            let tasks: Vec<_> = (0..slice.tasks as u64).map(task).collect();
            let mut done = 0;
            for task in tasks {
                done += task.await.unwrap();
            }
            done
        })
    })
}

/// Returns the work between rounds: every fourth time, it empties the server, whose tables would grow during the whole run.
pub fn emptied(server: &RedisServer) -> impl Fn(u64) {
    move |round| {
        if round.is_multiple_of(4) {
            server.command(&["FLUSHALL", "SYNC"]);
        }
    }
}

/// The result of a slice.
#[derive(Clone, Copy)]
pub struct Taken {
    pub done: u64,
    pub wall: Duration,
    here: Duration,
    there: Duration,
}

impl Taken {
    /// Returns operations per second.
    pub fn rate(&self) -> f64 {
        self.done as f64 / self.wall.as_secs_f64()
    }

    /// Returns the processor time of this process and of the server for each operation, in µs.
    pub fn cpu(&self) -> f64 {
        self.client() + self.server()
    }

    pub fn client(&self) -> f64 {
        self.here.as_secs_f64() * 1e6 / self.done as f64
    }

    pub fn server(&self) -> f64 {
        self.there.as_secs_f64() * 1e6 / self.done as f64
    }
}

/// Rounds, each with a slice of every mode.
pub struct Rounds(Vec<Vec<Taken>>);

/// The number of rounds in a measurement.
const ROUNDS: u64 = 81;
const SLICE: Duration = Duration::from_millis(100);

impl Rounds {
    /// Runs all rounds. `between` is called before each round.
    pub async fn take(
        report: &Report,
        server: &RedisServer,
        tasks: usize,
        modes: &[Mode],
        between: impl Fn(u64),
    ) -> Self {
        let (rounds, length) = if report.is_tried() { (1, Duration::from_millis(2)) } else { (ROUNDS, SLICE) };
        let mut taken = Vec::new();
        for round in 0..rounds {
            between(round);
            let mut slices = vec![None; modes.len()];
            for at in turns(round as usize, modes.len()) {
                let from = (1 + round) * 1_000 * EACH;
                slices[at] = Some(slice(server, tasks, from, length, &modes[at]).await);
            }
            taken.push(slices.into_iter().map(Option::unwrap).collect());
        }
        Self(taken)
    }

    /// Returns the figure of one mode compared with another.
    pub fn pair(&self, ours: usize, floor: usize, figure: impl Fn(&Taken) -> f64) -> Pair {
        let rounds = self.0.iter().map(|round| (figure(&round[ours]), figure(&round[floor])));
        Pair::medians(&rounds.collect::<Vec<_>>())
    }

    /// Returns the total number of operations of a mode.
    pub fn done(&self, mode: usize) -> u64 {
        self.0.iter().map(|round| round[mode].done).sum()
    }
}

async fn slice(server: &RedisServer, tasks: usize, from: u64, length: Duration, mode: &Mode) -> Taken {
    let over = Arc::new(AtomicBool::new(false));
    let spent = || (cpu::spent(std::process::id()), cpu::spent(server.pid()));
    let (before, start) = (spent(), Instant::now());
    let running = tokio::spawn(mode(Slice { tasks, from, length, over: over.clone() }));
    tokio::time::sleep(length).await;
    over.store(true, Ordering::Relaxed);
    let done = running.await.unwrap();
    let (wall, after) = (start.elapsed(), spent());
    Taken { done, wall, here: after.0.saturating_sub(before.0), there: after.1.saturating_sub(before.1) }
}
