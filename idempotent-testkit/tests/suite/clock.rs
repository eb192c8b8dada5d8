//! The virtual clock fires timers exactly, in order, and waits for stores on other threads.
use std::sync::{Arc, Mutex};
use std::time::Duration;

use idempotent_core::{Clock, Timestamp};
use idempotent_testkit::VirtualClock;

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// The timers that fired, with their times.
#[derive(Clone, Default)]
struct Fired(Arc<Mutex<Vec<(&'static str, u128)>>>);

impl Fired {
    fn note(&self, name: &'static str, clock: &VirtualClock) {
        self.0.lock().unwrap().push((name, clock.elapsed().as_millis()));
    }

    fn take(&self) -> Vec<(&'static str, u128)> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

fn spawn(name: &'static str, after: Duration, clock: &VirtualClock, fired: &Fired) {
    let (clock, fired) = (clock.clone(), fired.clone());
    let timer = clock.sleep_until(clock.now() + after);
    tokio::spawn(async move {
        timer.await;
        fired.note(name, &clock);
    });
}

#[tokio::test]
async fn timers_fire_by_deadline_then_in_the_order_they_were_made() {
    let (clock, fired) = (VirtualClock::new(), Fired::default());
    spawn("late", ms(20), &clock, &fired);
    spawn("first", ms(10), &clock, &fired);
    spawn("second", ms(10), &clock, &fired);
    spawn("third", ms(10), &clock, &fired);
    clock.advance(ms(30)).await;
    assert_eq!(fired.take(), [("first", 10), ("second", 10), ("third", 10), ("late", 20)]);
    assert_eq!((clock.pending_timers(), clock.elapsed()), (0, ms(30)));
}

#[tokio::test]
async fn no_timer_fires_early() {
    let (clock, fired) = (VirtualClock::new(), Fired::default());
    spawn("a", ms(10), &clock, &fired);
    clock.advance(Duration::from_nanos(9_999_999)).await;
    assert_eq!(fired.take(), []);
    clock.advance(Duration::from_nanos(1)).await;
    assert_eq!(fired.take(), [("a", 10)]);
}

#[tokio::test]
async fn timers_made_on_the_way_fire_on_the_way() {
    let (clock, fired) = (VirtualClock::new(), Fired::default());
    let (beat, beats) = (clock.clone(), fired.clone());
    tokio::spawn(async move {
        loop {
            beat.sleep_until(beat.now() + ms(10)).await;
            beats.note("beat", &beat);
        }
    });
    clock.advance(ms(35)).await;
    assert_eq!(fired.take(), [("beat", 10), ("beat", 20), ("beat", 30)]);
    assert_eq!(clock.pending_timers(), 1);
}

#[tokio::test]
async fn a_timer_of_the_past_ends_at_once_and_a_dropped_one_is_forgotten() {
    let clock = VirtualClock::new();
    clock.sleep_until(clock.now()).await;
    let timer = clock.sleep_until(clock.now() + ms(1));
    assert_eq!(clock.pending_timers(), 1);
    drop(timer);
    assert_eq!(clock.pending_timers(), 0);
}

#[tokio::test]
async fn after_a_jump_all_timers_fire_late() {
    let (clock, fired) = (VirtualClock::new(), Fired::default());
    spawn("b", ms(20), &clock, &fired);
    spawn("a", ms(10), &clock, &fired);
    clock.settle().await;
    clock.jump(ms(60));
    clock.settle().await;
    assert_eq!(fired.take(), [("a", 60), ("b", 60)]);
}

#[tokio::test]
async fn time_does_not_move_while_a_call_is_in_flight_on_another_thread() {
    let (clock, fired) = (VirtualClock::new(), Fired::default());
    let (task, notes) = (clock.clone(), fired.clone());
    tokio::spawn(async move {
        task.sleep_until(task.now() + ms(10)).await;
        let guard = task.busy();
        tokio::task::spawn_blocking(|| std::thread::sleep(ms(30))).await.unwrap();
        drop(guard);
        notes.note("stored", &task);
    });
    spawn("later", ms(11), &clock, &fired);
    clock.advance(ms(20)).await;
    assert_eq!(fired.take(), [("stored", 10), ("later", 11)]);
}

#[tokio::test]
async fn a_long_chain_of_wake_ups_is_seen_through() {
    let clock = VirtualClock::new();
    let (mut sender, mut receiver) = tokio::sync::oneshot::channel::<u32>();
    clock.settle().await;
    let first = sender;
    for _ in 0..200 {
        let (next, last) = tokio::sync::oneshot::channel();
        sender = next;
        let heard = std::mem::replace(&mut receiver, last);
        tokio::spawn(async move { sender.send(heard.await.unwrap() + 1) });
    }
    first.send(0).unwrap();
    clock.settle().await;
    assert_eq!(receiver.try_recv(), Ok(200));
}

#[tokio::test]
async fn a_skewed_handle_differs_in_its_wall_clock_only() {
    let clock = VirtualClock::new();
    let client = clock.skewed(-5_000_000);
    assert_eq!(clock.wall(), VirtualClock::START);
    client.advance(ms(1)).await;
    assert_eq!(clock.wall(), VirtualClock::START + ms(1));
    assert_eq!(client.wall(), Timestamp(VirtualClock::START.0 + 1_000 - 5_000_000));
    assert_eq!(client.now(), clock.now());
    client.set_wall_offset(7);
    assert_eq!(client.wall() - clock.wall(), Duration::from_micros(7));
}

/// There a task may set its timer when time has gone by already, and its test would hang.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_several_threads_it_says_what_it_needs_and_does_not_hang() {
    let clock = VirtualClock::new();
    let advanced = tokio::spawn({
        let clock = clock.clone();
        async move { clock.advance(ms(10)).await }
    });
    let settled = tokio::spawn({
        let clock = clock.clone();
        async move { clock.settle().await }
    });
    for ended in [advanced.await, settled.await] {
        let text = *ended.unwrap_err().into_panic().downcast::<String>().unwrap();
        assert_eq!(
            text,
            "VirtualClock needs a current_thread runtime, as `#[tokio::test]` has; this runtime is multi_thread"
        );
    }
    assert_eq!(clock.elapsed(), Duration::ZERO);
    clock.jump(ms(10)); // waits for nobody
    assert_eq!(clock.elapsed(), ms(10));
}
