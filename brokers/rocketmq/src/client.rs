//! The runtime of RocketMQ's client, on a thread of its own.
//!
//! The client needs a runtime of its own type and calls listeners on the blocking threads of that runtime. Each call blocks
//! until its messages are settled. The runtime is therefore separate from the caller's and has one thread for each call.
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use idempotent_mq::{ServerUrl, SourceError, UrlError, UrlForm, UrlParameter};
use rocketmq_client_rust::{
    AclClientRPCHook, ClientConfig, ClientRuntime, ClientRuntimeConfig, SessionCredentials, TelemetryHandle,
};
use rocketmq_runtime::{RuntimeConfig, RuntimeOwner, ShutdownDeadline};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tracing::warn;

use crate::SettingError;
use crate::error::transient;

/// Number of blocking threads in addition to the threads for listeners.
const EXTRA_THREADS: usize = 8;
/// Maximum duration of a listener's call, which lasts as long as its run. With the client's default of 30 s, the client would
/// send the message back during the run.
const CALL_TIMEOUT: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// Time that the client's own tasks have to finish at shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);
/// Time limit for opening a session, with several requests.
const OPENING_LIMIT: Duration = Duration::from_secs(30);

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

/// Waits for the result of a task on a client's thread.
pub(crate) async fn answer_of<T>(
    doing: &str,
    result: oneshot::Receiver<Result<T, SourceError>>,
) -> Result<T, SourceError> {
    match timeout(OPENING_LIMIT, result).await {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => Err(transient(&format!("{doing}: the client could not be started; see the log"))),
        Err(_) => {
            let remedy = "check that the name servers and the brokers are running, and the network";
            Err(transient(&format!("{doing}: no end within {OPENING_LIMIT:?}; {remedy}")))
        }
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

/// The form of the URLs of RocketMQ: its name servers, whose default port is 9876.
///
/// With an access key and a secret key, the client signs its requests by HMAC-SHA1, the default of RocketMQ. TLS encrypts all
/// connections, so the name servers and the brokers must accept it. Connecting by TLS sets the default `CryptoProvider` of rustls to
/// `aws-lc-rs`, unless the process has set one.
pub const URL_FORM: UrlForm = UrlForm {
    broker: "RocketMQ",
    schemes: &["rocketmq", "rocketmqs"],
    tls: Some("rocketmqs"),
    form: "rocketmq://[ACCESS_KEY:SECRET_KEY@]HOST[:PORT][,HOST[:PORT]]",
    parameters: &[UrlParameter::new(
        "tls_ca",
        "FILE",
        "the certificates that the client trusts, in PEM, which TLS requires",
    )],
};

/// The name servers, and the security of all connections to them and to the brokers.
#[derive(Clone)]
pub(crate) struct ClientSettings {
    /// `HOST:PORT`, or `HOST:PORT;HOST:PORT` for several.
    pub(crate) name_servers: String,
    /// The access key and the secret key.
    credentials: Option<[String; 2]>,
    /// The file with the certificates that the client trusts.
    tls_ca: Option<String>,
    /// The error of an invalid URL.
    invalid: Option<UrlError>,
}

impl ClientSettings {
    /// Parses a URL. An error is kept for [`check`](Self::check).
    pub(crate) fn new(server: &ServerUrl) -> Self {
        Self::parse(server.as_str()).unwrap_or_else(|error| Self {
            name_servers: String::new(),
            credentials: None,
            tls_ca: None,
            invalid: Some(error),
        })
    }

    fn parse(text: &str) -> Result<Self, UrlError> {
        let url = URL_FORM.parse(text)?;
        let refused = |rule: &str| Err(URL_FORM.error(text, rule));
        let credentials = match url.user() {
            Some((access, Some(secret))) if !access.is_empty() => Some([access.to_owned(), secret.to_owned()]),
            Some(_) => return refused("the access key or the secret key is empty; set both"),
            None => None,
        };
        if !["", "/"].contains(&url.path()) {
            return refused("a path has no meaning; the topic is another argument");
        }
        let tls_ca = url.parameter("tls_ca").map(str::to_owned);
        match (url.scheme() == "rocketmqs", &tls_ca) {
            (true, _) if cfg!(not(feature = "tls")) => {
                return refused("this build has no TLS; enable the feature `tls` of `idempotent-rocketmq`");
            }
            (true, None) => return refused("set `tls_ca` to a file with the certificates that the client trusts"),
            (false, Some(_)) => return refused("`tls_ca` has no effect without TLS; use `rocketmqs://`"),
            _ => {}
        }
        let with_port = |host: &String| match host.rsplit_once(':') {
            Some((_, port)) if !port.contains(']') => host.clone(),
            _ => format!("{host}:9876"),
        };
        let name_servers = url.hosts().iter().map(with_port).collect::<Vec<_>>().join(";");
        Ok(Self { name_servers, credentials, tls_ca, invalid: None })
    }

    pub(crate) fn uses_tls(&self) -> bool {
        self.tls_ca.is_some()
    }

    /// Returns the hook that signs all requests.
    pub(crate) fn signer(&self) -> Option<Arc<AclClientRPCHook>> {
        let [access_key, secret_key] = self.credentials.clone()?;
        Some(Arc::new(AclClientRPCHook::new(SessionCredentials::with_keys(access_key, secret_key))))
    }

    pub(crate) fn check(&self) -> Result<(), SettingError> {
        if let Some(error) = &self.invalid {
            return Err(SettingError::new(error.to_string()));
        }
        if let Some(path) = &self.tls_ca
            && let Err(error) = std::fs::File::open(path)
        {
            let text = format!("tls_ca: {path} cannot be read: {error}; name a PEM file with certificates");
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
        config.set_tls_client_trust_cert_path(path.clone());
    }
    let number = CLIENTS.fetch_add(1, Relaxed);
    config.set_instance_name(format!("idempotent-{}-{number}", std::process::id()).into());
    // After a crash, acknowledgements that were not yet reported are lost. The default interval is 5 s.
    config.set_persist_consumer_offset_interval(1_000);
    // See `body`.
    config.set_decode_decompress_body(false);
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_the_servers_and_possibly_keys_and_certificates() {
        let settings = |url: &str| ClientSettings::new(&url.into());
        let plain = settings("rocketmq://a,[::1]:7,[::1]/");
        assert_eq!((&*plain.name_servers, plain.invalid.is_none()), ("a:9876;[::1]:7;[::1]:9876", true));
        let keys = settings("rocketmq://ledger:p%40%3a@h");
        assert_eq!(keys.credentials, Some(["ledger".to_owned(), "p@:".to_owned()]));
        for (url, rule) in [
            ("localhost:9876", "use `rocketmq://"),
            ("rocketmq://h:0", "port 0"),
            ("rocketmq://a:1;b:2", "use `rocketmq://"),
            ("rocketmq://:s@h", "set both"),
            ("rocketmq://ledger@h", "set both"),
            ("rocketmq://h/orders", "a path has no meaning"),
            ("rocketmq://h?ca=x", "unknown parameter `ca`"),
            ("rocketmqs://h?tls_caa=x", "did you mean `tls_ca`?"),
            ("rocketmq://h?tls_ca=x", "use `rocketmqs://`"),
            ("rocketmqs://h", if cfg!(feature = "tls") { "set `tls_ca`" } else { "enable the feature `tls`" }),
        ] {
            let error = settings(url).check().map_err(|error| error.to_string());
            assert!(error.as_ref().is_err_and(|error| error.contains(rule)), "{url}: {error:?}");
        }
    }
}
