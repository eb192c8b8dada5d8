//! The processor time of each part of CI, and its limits. The wall-clock time is not limited, because a busy machine
//! increases it. Programs of other guests on the same hardware increase the processor time of the same work, so the limits
//! apply to a machine of nominal speed.
use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::hint::black_box;
use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::tools::{Done, target};

/// The parts and their limits in seconds of processor time at the nominal speed, without earlier build results, with a
/// margin.
const LIMITS: [(&str, u64); 3] = [("check", 1_900), ("test", 2_800), ("extras", 2_000)];

/// The ticks of `/proc/self/stat` in a second, on every Linux.
const TICKS: u64 = 100;

/// A part that is being measured.
#[derive(Debug)]
pub(crate) struct Measured {
    start: Instant,
    before: u64,
    speed: SpeedSampler,
}

impl Measured {
    pub(crate) fn begin() -> Self {
        Self { start: Instant::now(), before: processor(), speed: SpeedSampler::start() }
    }

    /// Prints the times of the part, and writes them to the file for [`check`].
    pub(crate) fn end(self, part: &str) -> Result<(), Box<dyn Error>> {
        let (wall, cpu) = (self.start.elapsed().as_secs(), processor() - self.before);
        let slowness = self.speed.end();
        let nominal = (cpu as f64 / slowness).round() as u64;
        println!(
            "xtask {part}: took {wall} s, and {cpu} s of processor time: {nominal} s at the nominal speed ({slowness:.2} \
             times as much on this machine)"
        );
        let mut all = read()?;
        all.insert(part.to_owned(), json!({ "wall": wall, "cpu": cpu, "nominal": nominal }));
        let path = path()?;
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        Ok(fs::write(path, serde_json::to_string_pretty(&all)?)?)
    }
}

/// Compares the last measurements with the limits. A part without a measurement is listed and does not fail.
pub(crate) fn check() -> Done {
    let measured = read()?;
    let mut within = true;
    for (part, limit) in LIMITS {
        match measured.get(part).and_then(|part| part["nominal"].as_u64()).filter(|cpu| *cpu > 0) {
            Some(cpu) => {
                let word = if cpu <= limit { "ok     " } else { "FAILED " };
                println!("{word}  {part}: {cpu} s of processor time at the nominal speed, at most {limit} s");
                within &= cpu <= limit;
            }
            None => println!("skipped  {part}: not measured here"),
        }
    }
    if !within {
        println!("xtask check: a part costs more than its share");
    }
    Ok(within)
}

fn path() -> Result<PathBuf, Box<dyn Error>> {
    Ok(target()?.join("xtask/durations.json"))
}

fn read() -> Result<BTreeMap<String, Value>, Box<dyn Error>> {
    match fs::read_to_string(path()?) {
        Ok(text) => Ok(serde_json::from_str(&text)?),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(BTreeMap::new()),
        Err(error) => Err(error.into()),
    }
}

/// Returns the seconds of processor time of all children that have ended, or 0 on a system without `/proc`.
fn processor() -> u64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    children(&stat).unwrap_or_default() / TICKS
}

/// Returns the ticks of the awaited children, in user mode and in system mode.
fn children(stat: &str) -> Option<u64> {
    // The name of the program is the second field, in parentheses, and may contain any character.
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut ticks = fields.split(' ').skip(13).map(str::parse::<u64>);
    Some(ticks.next()?.ok()? + ticks.next()?.ok()?)
}

/// The time between two samples.
const PAUSE: Duration = Duration::from_secs(10);
/// The processor time of a sample in ns on the machine for which the limits are set, while both of its cores were idle.
const NOMINAL: f64 = 150e6;
/// The repetitions in a sample, which make it long compared with the kernel's resolution of 4 ms.
const ROUNDS: usize = 20;
/// The number of indices in the pointer chase, 16 MiB: more than the caches of one core.
const INDICES: usize = 4 << 20;
/// An odd step, so that the chase visits all indices.
const STEP: usize = 2_654_435_761;

/// A thread that samples the speed of the machine.
#[derive(Debug)]
struct SpeedSampler {
    stop: Sender<()>,
    thread: JoinHandle<Vec<u64>>,
}

impl SpeedSampler {
    fn start() -> Self {
        let (stop, stopped) = mpsc::channel();
        let thread = thread::spawn(move || {
            let indices: Vec<u32> = (0..INDICES).map(|at| (at.wrapping_add(STEP) % INDICES) as u32).collect();
            let mut samples = Vec::new();
            loop {
                samples.extend(sample(&indices));
                if stopped.recv_timeout(PAUSE) != Err(RecvTimeoutError::Timeout) {
                    return samples;
                }
            }
        });
        Self { stop, thread }
    }

    /// Returns the processor time of a sample relative to the nominal one: 1 on the nominal machine, 2 on a machine that
    /// is half as fast.
    fn end(self) -> f64 {
        drop(self.stop);
        let samples = self.thread.join().unwrap_or_default();
        // A system without `/proc` has no samples.
        if samples.is_empty() { 1.0 } else { samples.iter().sum::<u64>() as f64 / samples.len() as f64 / NOMINAL }
    }
}

/// Returns the processor time of a fixed piece of work in ns, or `None` on a system without `/proc`. The work resembles
/// that of a compiler: it allocates, compares texts, and reads memory that is in no cache.
fn sample(indices: &[u32]) -> Option<u64> {
    let before = thread_time()?;
    for _ in 0..ROUNDS {
        let names = (0..4_000_usize).map(|n| (format!("name-{}", n.wrapping_mul(STEP)), n));
        let mut at = names.collect::<BTreeMap<_, _>>().values().sum::<usize>() % indices.len();
        for _ in 0..100_000 {
            at = indices[at] as usize;
        }
        black_box(at);
    }
    Some(thread_time()? - before)
}

/// Returns the processor time of this thread in ns.
fn thread_time() -> Option<u64> {
    let times = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    times.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_of_children_are_read_whatever_the_program_is_called() {
        let stat = "42 (a ) b) S 1 42 42 0 -1 4194304 100 200 0 0 11 12 13 14 20 0 1 0";
        assert_eq!(children(stat), Some(27));
        assert_eq!(children("nonsense"), None);
    }
}
