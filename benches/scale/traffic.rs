//! The bytes of a cycle: between client and server, and in an append-only file, whose commands replicas receive, too.
use idempotent_harness::servers::RedisServer;
use tokio::runtime::Runtime;

use crate::packed::{self, Packed};
use crate::records::Records;
use crate::report::{Goal, Report};
use crate::{PACKED, REDIS};

const TO: &str = "bytes of a cycle, to the server";
const FROM: &str = "bytes of a cycle, from the server";
const AOF: &str = "AOF of a cycle";
/// The live segments of the prototype, with 4 segments in a retention.
const LIVE: u64 = 5;

pub fn all(report: &Report, runtime: &Runtime) {
    if !["redis", PACKED].iter().any(|store| [TO, FROM, AOF].iter().any(|case| report.wants(store, case))) {
        return;
    }
    let cycles = if report.is_tried() { 256 } else { 16_000 };
    let files = ["--appendonly", "yes", "--appendfsync", "no", "--auto-aof-rewrite-percentage", "0"];
    let server = RedisServer::builder().args(files).start();
    // An existing set costs no expiry.
    packed::fill(&server, 1);
    let mut records = Records::new(&server, runtime);
    measure(report, &server, REDIS, cycles, || records.cycles(0..cycles));
    let mut packed = Packed::new(&server, LIVE, 1);
    measure(report, &server, PACKED, cycles, || packed.cycles(0..cycles));
}

fn measure(report: &Report, server: &RedisServer, store: &'static str, cycles: u64, work: impl FnOnce()) {
    let read = || {
        ["total_net_input_bytes", "total_net_output_bytes", "aof_current_size"]
            .map(|name| server.info(name).parse::<f64>().unwrap())
    };
    let before = read();
    work();
    let after = read();
    for (at, case) in [TO, FROM, AOF].into_iter().enumerate() {
        report.value((store, case, None), "B", (after[at] - before[at]) / cycles as f64, Goal::None);
    }
}
