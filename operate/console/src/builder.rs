//! The construction of a console.
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Router;
use idempotent_core::{Executor, Store};
use idempotent_mq::{ConsumerCounters, DeadLetters};
use idempotent_operate::{AuditFile, AuditSink, DelayAccess, TracingAudit};
use tokio::sync::Semaphore;

use crate::access::Access;
use crate::router;
use crate::state::{FormKey, Shared};
use crate::targets::{Named, Queue, Targets};

/// The pages for operators, as a [`Router`] that a service mounts below a path of its own.
///
/// Clones share sessions, plans and tasks.
#[derive(Clone, Debug)]
pub struct Console(Arc<Shared>);

impl Console {
    /// Returns a builder. Only [`access`](ConsoleBuilder::access) has no default.
    #[must_use]
    pub fn builder() -> ConsoleBuilder {
        ConsoleBuilder::default()
    }

    /// Returns the router of a service that consists of the console alone. All links are relative, so a proxy may strip a prefix.
    ///
    /// Start the service by `into_make_service_with_connect_info::<SocketAddr>()` to count failed logins by address. Otherwise
    /// all clients share one count.
    pub fn router(&self) -> Router {
        router::router(self.0.clone())
    }

    /// Returns a router with the console below a path of the service, such as `.merge(console.mount("/admin/idempotent"))`. The
    /// path leads to the console with and without a slash at its end. [`Router::nest`] would leave out the one with the slash.
    ///
    /// # Panics
    /// Panics if the path is `/` or no path of a router, as [`Router::nest_service`] does.
    pub fn mount<S: Clone + Send + Sync + 'static>(&self, path: &str) -> Router<S> {
        Router::new().nest_service(path, self.router())
    }
}

/// An error of building a console.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// No authentication was chosen.
    #[error("the console has no authentication: call `ConsoleBuilder::access`")]
    NoAccess,
    /// Two targets of one kind have the same name.
    #[error("two {kind} of the console have the name `{name}`: give each a name of its own")]
    SameName {
        /// The kind of the targets.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// The audit file cannot be opened.
    #[error("the audit file `{path}` cannot be opened: {error}")]
    Audit {
        /// The path.
        path: String,
        /// The error of the system.
        #[source]
        error: io::Error,
    },
    /// The operating system has no random numbers.
    #[error("the operating system has no random numbers: {0}")]
    Random(#[from] getrandom::Error),
}

/// A builder for a [`Console`].
pub struct ConsoleBuilder {
    targets: Targets,
    access: Option<Access>,
    audit: Arc<dyn AuditSink>,
    audit_file: Option<PathBuf>,
    is_read_only: bool,
    hosts: Vec<String>,
    has_secure_cookie: bool,
    /// The first name that was given twice.
    same: Option<(&'static str, String)>,
}

impl Default for ConsoleBuilder {
    fn default() -> Self {
        Self {
            targets: Targets::default(),
            access: None,
            audit: Arc::new(TracingAudit),
            audit_file: None,
            is_read_only: false,
            hosts: Vec::new(),
            has_secure_cookie: true,
            same: None,
        }
    }
}

impl fmt::Debug for ConsoleBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsoleBuilder").field("targets", &self.targets).finish_non_exhaustive()
    }
}

impl ConsoleBuilder {
    /// Sets the authentication.
    #[must_use]
    pub fn access(mut self, access: Access) -> Self {
        self.access = Some(access);
        self
    }

    /// Adds a store.
    #[must_use]
    pub fn store(self, name: impl Into<String>, store: Arc<dyn Store>) -> Self {
        self.add("stores", name.into(), store, |targets| &mut targets.stores)
    }

    /// Adds an executor of this process, whose counts the overview shows.
    #[must_use]
    pub fn executor(self, name: impl Into<String>, executor: Executor) -> Self {
        self.add("executors", name.into(), executor, |targets| &mut targets.executors)
    }

    /// Adds a consumer of this process, whose counts the overview shows.
    #[must_use]
    pub fn consumer(self, name: impl Into<String>, counters: ConsumerCounters) -> Self {
        self.add("consumers", name.into(), counters, |targets| &mut targets.consumers)
    }

    /// Adds a queue with dead letters. The console calls `open` for each request that reads or changes letters, and to count them for an
    /// open overview, at most once in 30 s, or 10 s after an error. To count its letters, Kafka reads their whole topic. RabbitMQ may drop
    /// a letter of a foreign quorum queue that was read too often, so reading stops after 10 deliveries of a letter.
    #[must_use]
    pub fn queue<F, E>(self, name: impl Into<String>, open: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Box<dyn DeadLetters>, E>> + Send + 'static,
        E: fmt::Display,
    {
        self.add("queues", name.into(), Queue::new(open, None), |targets| &mut targets.queues)
    }

    /// Adds a queue with dead letters, and the store of its consumer. A redrive can then free the keys of the letters, so that
    /// the messages run again.
    #[must_use]
    pub fn queue_with_store<F, E>(
        self,
        name: impl Into<String>,
        open: impl Fn() -> F + Send + Sync + 'static,
        store: Arc<dyn Store>,
    ) -> Self
    where
        F: Future<Output = Result<Box<dyn DeadLetters>, E>> + Send + 'static,
        E: fmt::Display,
    {
        self.add("queues", name.into(), Queue::new(open, Some(store)), |targets| &mut targets.queues)
    }

    /// Adds an outbox: a [`PooledOutbox`](crate::PooledOutbox).
    #[cfg(feature = "__outbox")]
    #[cfg_attr(docsrs, doc(cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))))]
    #[must_use]
    pub fn outbox(self, name: impl Into<String>, outbox: Arc<dyn idempotent_operate::OutboxAccess>) -> Self {
        self.add("outboxes", name.into(), outbox, |targets| &mut targets.outboxes)
    }

    /// Adds a delay queue or a delay table.
    #[must_use]
    pub fn delay(self, name: impl Into<String>, delay: Arc<dyn DelayAccess>) -> Self {
        self.add("delay queues", name.into(), delay, |targets| &mut targets.delays)
    }

    /// Sets the destination of the audit log. The audit page can show only the entries of an [`audit_file`](Self::audit_file).
    ///
    /// # Default
    /// [`TracingAudit`], the log of the service.
    #[must_use]
    pub fn audit(mut self, audit: Arc<dyn AuditSink>) -> Self {
        (self.audit, self.audit_file) = (audit, None);
        self
    }

    /// Writes the audit log to a file, one JSON object per line, and shows the file on the audit page.
    ///
    /// # Errors
    /// [`Audit`](SetupError::Audit) if the file cannot be opened.
    pub fn audit_file(mut self, path: impl AsRef<Path>) -> Result<Self, SetupError> {
        let path = path.as_ref();
        let open = AuditFile::open(path);
        let file = open.map_err(|error| SetupError::Audit { path: path.display().to_string(), error })?;
        (self.audit, self.audit_file) = (Arc::new(file), Some(path.to_owned()));
        Ok(self)
    }

    /// Leaves out all routes that change anything.
    ///
    /// # Default
    /// `false`
    #[must_use]
    pub fn read_only(mut self, is_read_only: bool) -> Self {
        self.is_read_only = is_read_only;
        self
    }

    /// Sets the values of `Host` that the console answers to, such as `["localhost:7070"]`. Other requests get status 421, which
    /// stops DNS rebinding.
    ///
    /// # Default
    /// All hosts, because the host application checks them.
    #[must_use]
    pub fn hosts<H: Into<String>>(mut self, hosts: impl IntoIterator<Item = H>) -> Self {
        self.hosts = hosts.into_iter().map(Into::into).collect();
        self
    }

    /// Sets whether browsers may send the session cookie over TLS only. Set this to `false` only for a console on a loopback
    /// address without TLS.
    ///
    /// # Default
    /// `true`
    #[must_use]
    pub fn secure_cookie(mut self, is_secure: bool) -> Self {
        self.has_secure_cookie = is_secure;
        self
    }

    /// Builds the console.
    ///
    /// # Errors
    /// [`NoAccess`](SetupError::NoAccess) without an [`access`](Self::access), and [`SameName`](SetupError::SameName) if two
    /// targets of one kind have the same name.
    pub fn build(self) -> Result<Console, SetupError> {
        if let Some((kind, name)) = self.same {
            return Err(SetupError::SameName { kind, name });
        }
        Ok(Console(Arc::new(Shared {
            targets: self.targets,
            access: self.access.ok_or(SetupError::NoAccess)?,
            sessions: Default::default(),
            throttle: Default::default(),
            readiness: Default::default(),
            plans: Default::default(),
            samples: Default::default(),
            keys: Default::default(),
            checks: Default::default(),
            letters: Default::default(),
            audit: self.audit,
            audit_file: self.audit_file,
            audit_reader: Arc::new(Semaphore::new(1)),
            is_read_only: self.is_read_only,
            hosts: self.hosts,
            has_secure_cookie: self.has_secure_cookie,
            form_key: FormKey::random()?,
        })))
    }

    /// Adds a target, and remembers a name that is taken.
    fn add<T: Clone>(
        mut self,
        kind: &'static str,
        name: String,
        target: T,
        of_kind: impl Fn(&mut Targets) -> &mut Named<T>,
    ) -> Self {
        if !of_kind(&mut self.targets).add(name.clone(), target) {
            self.same.get_or_insert((kind, name));
        }
        self
    }
}
