//! The runtime of RocketMQ's client, on a thread of its own.
//!
//! The client needs a runtime of its own type and calls listeners on the blocking threads of that runtime. Each call blocks
//! until its messages are settled. The runtime is therefore separate from the caller's and has one thread for each call.
use std::fmt;
use std::future::Future;
#[cfg(feature = "tls")]
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use rocketmq_client_rust::{
    AclClientRPCHook, ClientConfig, ClientRuntime, ClientRuntimeConfig, SessionCredentials, TelemetryHandle,
};
use rocketmq_runtime::{RuntimeConfig, RuntimeOwner, ShutdownDeadline};
use tracing::warn;

use crate::SettingError;
use crate::settings::check_servers;

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

/// The name servers, and the security of all connections to them and to the brokers.
#[derive(Clone)]
pub(crate) struct ClientSettings {
    /// `HOST:PORT`, or `HOST:PORT;HOST:PORT` for several.
    pub(crate) name_servers: String,
    /// The access key and the secret key.
    pub(crate) credentials: Option<[String; 2]>,
    /// The file with the certificates that the client trusts.
    #[cfg(feature = "tls")]
    pub(crate) tls_ca: Option<PathBuf>,
}

impl ClientSettings {
    pub(crate) fn new(name_servers: String) -> Self {
        Self {
            name_servers,
            credentials: None,
            #[cfg(feature = "tls")]
            tls_ca: None,
        }
    }

    /// Returns the hook that signs all requests.
    pub(crate) fn signer(&self) -> Option<Arc<AclClientRPCHook>> {
        let [access_key, secret_key] = self.credentials.clone()?;
        Some(Arc::new(AclClientRPCHook::new(SessionCredentials::with_keys(access_key, secret_key))))
    }

    pub(crate) fn check(&self) -> Result<(), SettingError> {
        check_servers(&self.name_servers)?;
        if self.credentials.iter().flatten().any(String::is_empty) {
            return Err(SettingError::new("credentials: the access key or the secret key is empty; set both"));
        }
        #[cfg(feature = "tls")]
        if let Some(path) = &self.tls_ca
            && let Err(error) = std::fs::File::open(path)
        {
            let text = format!("tls_ca: {} cannot be read: {error}; name a PEM file with certificates", path.display());
            return Err(SettingError::new(text));
        }
        Ok(())
    }
}

/// Shows no credentials.
impl fmt::Debug for ClientSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientSettings").field("name_servers", &self.name_servers).finish_non_exhaustive()
    }
}

/// Returns the configuration of one client. Each client has a unique instance name, because two clients with one name and one
/// group would share their queues.
pub(crate) fn client_config(settings: &ClientSettings) -> ClientConfig {
    static CLIENTS: AtomicU64 = AtomicU64::new(0);
    let mut config = ClientConfig::new();
    config.set_namesrv_addr(settings.name_servers.as_str().into());
    #[cfg(feature = "tls")]
    if let Some(path) = &settings.tls_ca {
        // The client takes the default provider of the process, and panics if two are compiled in and none is the default.
        // An error means that the process has a default already.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        config.set_use_tls(true);
        // In its test mode, the client would trust every certificate.
        config.set_tls_test_mode_enable(false);
        config.set_tls_client_auth_server(true);
        config.set_tls_client_trust_cert_path(path.display().to_string());
    }
    let number = CLIENTS.fetch_add(1, Relaxed);
    config.set_instance_name(format!("idempotent-{}-{number}", std::process::id()).into());
    // After a crash, acknowledgements that were not yet reported are lost. The default interval is 5 s.
    config.set_persist_consumer_offset_interval(1_000);
    config
}
