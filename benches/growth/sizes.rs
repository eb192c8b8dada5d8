//! Rounds in which every size is measured, in changing order.
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::report::{Goal, Pair, Report, median, nanos, turns};

/// The largest ratio of a flat cost.
pub const FLAT: Goal = Goal::AtMost(1.2);

/// A measurement at one size, which returns the time of its operations. The argument is the number of the round.
pub type AtSize = Box<dyn Fn(u64) -> Pin<Box<dyn Future<Output = Duration> + Send>> + Send + Sync>;

/// Boxes a measurement.
pub fn at_size<F, Fut>(measure: F) -> AtSize
where
    F: Fn(u64) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Duration> + Send + 'static,
{
    let measure = Arc::new(measure);
    Box::new(move |round| {
        let measure = measure.clone();
        Box::pin(async move { measure(round).await })
    })
}

/// Measures all sizes in each round. Returns the ns per operation of each size, compared with the first one.
pub async fn compare(report: &Report, rounds: u64, operations: u64, sizes: &[AtSize]) -> Vec<Pair> {
    let rounds = if report.is_tried() { 1 } else { rounds };
    let mut times = vec![Vec::new(); sizes.len()];
    for round in 0..rounds {
        for at in turns(usize::try_from(round).unwrap(), sizes.len()) {
            times[at].push(nanos(sizes[at](round).await, operations));
        }
    }
    let first = times[0].clone();
    let pair = |times: Vec<f64>| Pair {
        ratio: median(times.iter().zip(&first).map(|(time, first)| time / first).collect()),
        value: median(times),
        floor: median(first.clone()),
    };
    times.into_iter().map(pair).collect()
}

/// Returns a number with separators of thousands.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).unwrap()).collect();
    groups.join(",")
}
