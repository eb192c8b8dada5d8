//! Alternating rounds of the library and of the floor.
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::report::Pair;

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
        let (mut values, mut floors, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
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
            values.push(crate::report::nanos(value, self.operations));
            floors.push(crate::report::nanos(bare, self.operations));
            ratios.push(value.as_secs_f64() / bare.as_secs_f64());
        }
        Pair { value: median(values), floor: median(floors), ratio: median(ratios) }
    }
}

pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
