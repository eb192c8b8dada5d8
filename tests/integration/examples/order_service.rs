//! The application `order_service`, of the deployment samples: its processes are stopped by SIGTERM while orders pass through them.
mod fleet;
mod orders;

use self::fleet::{Fleet, Role};

/// The number of requests between two moments of a role.
const STEP: u64 = 8;

/// Stops each role in turn, `moments` times, after a number of requests that grows by [`STEP`]: from its start to full traffic. Each process exits with 0 within its grace period and
/// leaves no held key. In the end, each accepted order is shipped, and no order twice.
fn stopped_at(moments: u64) {
    let mut fleet = Fleet::start();
    for moment in 0..moments {
        let role = Role::ALL[(moment % Role::ALL.len() as u64) as usize];
        fleet.stop_after(role, moment / Role::ALL.len() as u64 * STEP);
        fleet.restart(role);
    }
    fleet.settles(moments as usize);
}

#[test]
fn a_process_stopped_at_any_moment_exits_in_time_and_loses_and_repeats_no_order() {
    stopped_at(40);
}

mod extras {
    #[test]
    fn a_process_stopped_at_any_of_200_moments_exits_in_time_and_loses_and_repeats_no_order() {
        super::stopped_at(200);
    }
}
