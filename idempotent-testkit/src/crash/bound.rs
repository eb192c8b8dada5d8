//! Limits for futures that may never end.
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

/// The reason why a future was given up.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Unended {
    /// The number of polls.
    Awaits(usize),
    /// The limit in real time.
    Time,
}

impl fmt::Display for Unended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Awaits(most) => {
                write!(f, "did not end within {most} awaits: does the handler poll in a loop? Let it wait for an event")
            }
            Self::Time => f.write_str(
                "did not end: does the handler wait for something nobody moves, such as a clock of the test's own, or \
                 an event of the first delivery?",
            ),
        }
    }
}

/// Returns the output of `future`, unless it exceeds `most` awaits or `patience` in real time. A thread measures the
/// time, because a tokio timer would need a runtime with timers, and would jump if tokio's time is paused.
pub(super) async fn within<F: Future>(patience: Duration, most: usize, future: F) -> Result<F::Output, Unended> {
    let mut future = pin!(future);
    let watch = Arc::new(Mutex::new(Watch { is_over: false, waiting: Waker::noop().clone() }));
    let mut thread = None;
    let mut waited = 0;
    poll_fn(|cx| {
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(Ok(output));
        }
        waited += 1;
        if waited >= most {
            return Poll::Ready(Err(Unended::Awaits(most)));
        }
        let is_over = {
            let mut watch = watch.lock().unwrap_or_else(PoisonError::into_inner);
            watch.waiting.clone_from(cx.waker());
            watch.is_over
        };
        thread.get_or_insert_with(|| call_after(patience, watch.clone()));
        if is_over { Poll::Ready(Err(Unended::Time)) } else { Poll::Pending }
    })
    .await
}

struct Watch {
    is_over: bool,
    waiting: Waker,
}

/// Runs until the returned value is dropped.
fn call_after(patience: Duration, watch: Arc<Mutex<Watch>>) -> impl Sized {
    let (alive, ended) = channel::<()>();
    std::thread::spawn(move || {
        if ended.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
            let waiting = {
                let mut watch = watch.lock().unwrap_or_else(PoisonError::into_inner);
                watch.is_over = true;
                watch.waiting.clone()
            };
            waiting.wake();
        }
    });
    alive
}
