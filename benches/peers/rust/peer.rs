//! The loop of a slice, and the lines of the protocol.
use std::future::Future;
use std::io::{BufRead, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// A counter of the handler's runs.
#[derive(Clone, Default)]
pub struct Runs(Arc<AtomicU64>);

impl Runs {
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A peer that runs the handler with the key of a number.
pub trait Peer: Clone + Send + 'static {
    fn run(&self, number: u64) -> impl Future<Output = ()> + Send;
    fn runs(&self) -> &Runs;
}

/// The numbers of each caller in a slice.
const EACH: u64 = 1_000_000;

/// Answers each line of stdin, until stdin ends:
///
/// - `run CALLERS MILLISECONDS FIRST KEYS`: callers run one operation after the other. The answer is the number of
///   operations, and the runs of the handler. With `KEYS` over 0, numbers are modulo `KEYS`.
/// - `fill KEYS`: runs each number below `KEYS`, with the same answer.
pub async fn serve(peer: impl Peer) {
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("stdin is text");
        let numbers: Vec<u64> = line.split(' ').skip(1).map(|word| word.parse().expect("a number")).collect();
        let before = peer.runs().0.load(Ordering::Relaxed);
        let done = match numbers[..] {
            [callers, milliseconds, first, keys] => slice(&peer, callers, milliseconds, first, keys).await,
            [keys] => fill(&peer, keys).await,
            _ => panic!("unknown line `{line}`"),
        };
        println!("{done} {}", peer.runs().0.load(Ordering::Relaxed) - before);
        std::io::stdout().flush().expect("stdout is open");
    }
}

async fn slice(peer: &impl Peer, callers: u64, milliseconds: u64, first: u64, keys: u64) -> u64 {
    let over = Arc::new(AtomicBool::new(false));
    let caller = |caller: u64| {
        let (peer, over) = (peer.clone(), over.clone());
        tokio::spawn(async move {
            let mut done = 0;
            while !over.load(Ordering::Relaxed) {
                let number = first + caller * EACH + done;
                peer.run(number.checked_rem(keys).unwrap_or(number)).await;
                done += 1;
                tokio::task::consume_budget().await;
            }
            done
        })
    };
    let callers: Vec<_> = (0..callers).map(caller).collect();
    tokio::time::sleep(Duration::from_millis(milliseconds)).await;
    over.store(true, Ordering::Relaxed);
    let mut done = 0;
    for caller in callers {
        done += caller.await.expect("a caller does not panic");
    }
    done
}

async fn fill(peer: &impl Peer, keys: u64) -> u64 {
    let callers = 64;
    let fill = |caller: u64| {
        let peer = peer.clone();
        tokio::spawn(async move {
            for number in (caller..keys).step_by(64) {
                peer.run(number).await;
            }
        })
    };
    for caller in (0..callers).map(fill).collect::<Vec<_>>() {
        caller.await.expect("a caller does not panic");
    }
    keys
}
