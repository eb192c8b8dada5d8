//! How a store is set up.
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::{Clock, StoreError, StoreErrorKind, SystemClock};
use redis::{IntoConnectionInfo, ProtocolVersion};

use crate::RedisStore;
use crate::cache::{Cache, CacheOptions};
use crate::failure::Failure;
use crate::hub::Hub;
use crate::lane::Lane;
use crate::link::{Link, Patience, Target};
use crate::script::{Dialect, Scripts};
use crate::store::Inner;
use crate::topology::Topology;

/// Changes a script's text.
type Edit = Arc<dyn Fn(&str) -> String + Send + Sync>;

/// Sets up a [`RedisStore`].
#[must_use]
pub struct RedisStoreBuilder {
    url: String,
    cache: Option<CacheOptions>,
    clock: Arc<dyn Clock>,
    patience: Patience,
    edit: Option<Edit>,
    plain: bool,
}

impl RedisStoreBuilder {
    pub(crate) fn new(url: String) -> Self {
        let patience = Patience { connect: Duration::from_secs(2), response: Duration::from_secs(2) };
        Self {
            url,
            cache: Some(CacheOptions::default()),
            clock: Arc::new(SystemClock::new()),
            patience,
            edit: None,
            plain: false,
        }
    }

    /// How many consumed keys this process keeps in mind, so that a duplicate of one costs no command; `None` for none.
    ///
    /// # Default
    /// [`CacheOptions::default`]
    pub fn cache(mut self, options: impl Into<Option<CacheOptions>>) -> Self {
        self.cache = options.into();
        self
    }

    /// What ages of cached keys are measured with. Records' times are the server's, whatever this says.
    ///
    /// # Default
    /// [`SystemClock`]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// How long to wait for a connection.
    ///
    /// # Default
    /// 2 s
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.patience.connect = timeout;
        self
    }

    /// How long to wait for an answer before the connection is given up and the call is ambiguous.
    ///
    /// # Default
    /// 2 s
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.patience.response = timeout;
        self
    }

    /// For tests of the scripts' guards only.
    #[doc(hidden)]
    pub fn edit_scripts(mut self, edit: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        self.edit = Some(Arc::new(edit));
        self
    }

    /// For tests of the form of the scripts that Redis 6.2 takes.
    #[doc(hidden)]
    pub fn plain_scripts(mut self) -> Self {
        self.plain = true;
        self
    }

    /// Connects.
    ///
    /// # Errors
    /// `NotApplied` if the server cannot be reached, `Denied` if it does not let us in.
    ///
    /// # Cancellation
    /// Nothing is left behind.
    pub async fn connect(self) -> Result<RedisStore, StoreError> {
        let hub = Arc::new(Hub::new(Cache::new(self.cache, self.clock)));
        let dialect = if self.plain { Dialect::Plain } else { Dialect::Flags };
        let edit = self.edit.unwrap_or_else(|| Arc::new(str::to_owned));
        let scripts = Scripts::new(dialect, |text| edit(text));
        let single = Single::of(&self.url)?;
        let link = Link::new(Box::new(single), self.patience, hub.clone());
        link.one(&redis::cmd("PING")).await?;
        let topology = Topology::One(Lane::new(link, scripts, true));
        Ok(RedisStore(Arc::new(Inner { topology, hub })))
    }
}

impl fmt::Debug for RedisStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStoreBuilder").field("cache", &self.cache).finish_non_exhaustive()
    }
}

/// One server, by its address.
#[derive(Debug)]
struct Single {
    client: redis::Client,
}

impl Single {
    fn of(url: &str) -> Result<Self, StoreError> {
        let invalid = |e: redis::RedisError| StoreError::new(StoreErrorKind::Schema).because(e.to_string());
        let info = url.into_connection_info().map_err(invalid)?;
        let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let client = redis::Client::open(info.set_redis_settings(settings)).map_err(invalid)?;
        Ok(Self { client })
    }
}

#[async_trait]
impl Target for Single {
    async fn client(&self) -> Result<redis::Client, Failure> {
        Ok(self.client.clone())
    }

    fn name(&self) -> String {
        self.client.get_connection_info().addr().to_string()
    }
}
