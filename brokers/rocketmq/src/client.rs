//! The runtime of RocketMQ's client, on a thread of its own.
//!
//! The client needs a runtime of its own type and calls listeners on the blocking threads of that runtime. Each call blocks
//! until its messages are settled. The runtime is therefore separate from the caller's and has one thread for each call.
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use rocketmq_client_rust::{ClientConfig, ClientRuntime, ClientRuntimeConfig, TelemetryHandle};
use rocketmq_runtime::{RuntimeConfig, RuntimeOwner, ShutdownDeadline};
use tracing::warn;

/// Number of blocking threads in addition to the threads for listeners.
const EXTRA_THREADS: usize = 8;
/// Maximum duration of a listener's call, which lasts as long as its run. With the client's default of 30 s, the client would
/// send the message back during the run.
const CALL_TIMEOUT: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// Time that the client's own tasks have to finish at shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// Spawns a thread with a client runtime that has `listeners` threads for listeners, and runs `task` on that runtime. The
/// runtime has one worker thread, which keeps the order in which the client hands out messages.
///
/// If the thread or the runtime cannot be created, the error is logged and `task` is dropped.
pub(crate) fn spawn_client<F>(listeners: usize, task: impl FnOnce(Arc<ClientRuntime>) -> F + Send + 'static)
where
    F: Future<Output = ()> + Send + 'static,
{
    let spawned = thread::Builder::new().name("idempotent-rocketmq".to_owned()).spawn(move || {
        if let Err(why) = run_client(listeners, task) {
            warn!(target: "idempotent", why, "RocketMQ client: the runtime could not be created or shut down");
        }
    });
    // A caller that waits for `task` sees the drop.
    if let Err(error) = spawned {
        warn!(target: "idempotent", %error, "RocketMQ client: the thread could not be spawned");
    }
}

fn run_client<F>(listeners: usize, task: impl FnOnce(Arc<ClientRuntime>) -> F) -> Result<(), String>
where
    F: Future<Output = ()> + Send + 'static,
{
    let threads = listeners + EXTRA_THREADS;
    let config = RuntimeConfig::for_parallelism("idempotent-rocketmq", 1).with_max_blocking_threads(threads);
    let mut config = config.map_err(|e| e.to_string())?;
    let calls = &mut config.blocking_lane_policies.metadata_io;
    (calls.max_concurrency, calls.max_queue_depth) = (threads, 2 * threads);
    (calls.task_timeout, calls.warn_after) = (CALL_TIMEOUT, CALL_TIMEOUT);
    let owner = RuntimeOwner::plan(config).map_err(|e| e.to_string())?.build().map_err(|e| e.to_string())?;
    let scope = owner.root_context().component("client");
    let runtime = ClientRuntime::try_new(scope, ClientRuntimeConfig::default(), TelemetryHandle::noop());
    let runtime = runtime.map_err(|e| e.to_string())?;
    let task = task(runtime.clone());
    owner.block_on(async move {
        // A spawned task runs on the worker thread.
        let _ = tokio::spawn(task).await;
        runtime.shutdown_until(ShutdownDeadline::after(SHUTDOWN_TIMEOUT)).await;
    });
    owner.shutdown_runtime_blocking_with_timeout(SHUTDOWN_TIMEOUT).map(drop).map_err(|e| e.to_string())
}

/// Returns the configuration of one client. Each client has a unique instance name, because two clients with one name and one
/// group would share their queues.
pub(crate) fn client_config(name_servers: &str) -> ClientConfig {
    static CLIENTS: AtomicU64 = AtomicU64::new(0);
    let mut config = ClientConfig::new();
    config.set_namesrv_addr(name_servers.into());
    let number = CLIENTS.fetch_add(1, Relaxed);
    config.set_instance_name(format!("idempotent-{}-{number}", std::process::id()).into());
    // After a crash, acknowledgements that were not yet reported are lost. The default interval is 5 s.
    config.set_persist_consumer_offset_interval(1_000);
    config
}
