//! The pause between purge statements.
use std::time::{Duration, Instant};

const LONGEST: Duration = Duration::from_secs(1);

/// Sleeps for the duration of the purge statement that began at `since`, at most one second. Other statements run during the
/// pause.
pub(crate) async fn pause_for_others(since: Instant) {
    tokio::time::sleep(since.elapsed().min(LONGEST)).await;
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_rest_is_as_long_as_the_step_and_no_longer_than_a_second() {
        let rested = async |step| {
            let since = Instant::now().checked_sub(step).expect("the machine has been up for longer");
            let began = tokio::time::Instant::now();
            pause_for_others(since).await;
            began.elapsed()
        };
        let step = Duration::from_millis(300);
        assert!((step..LONGEST).contains(&rested(step).await));
        // The timer counts whole milliseconds.
        assert!((LONGEST..=LONGEST + Duration::from_millis(1)).contains(&rested(LONGEST * 30).await));
    }
}
