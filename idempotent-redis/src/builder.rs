//! How a store is set up.
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::{Clock, StoreError, SystemClock};
use redis::RedisConnectionInfo;

use crate::RedisStore;
use crate::access::{self, Access};
use crate::cache::{Cache, CacheOptions};
use crate::cluster::{Cluster, Maker};
use crate::durability::{Counters, Durability};
use crate::failure::Failure;
use crate::hub::Hub;
use crate::lane::Lane;
use crate::link::{Link, Patience, Target};
use crate::place::Place;
use crate::script::{Dialect, Scripts};
use crate::sentinel::Sentinels;
use crate::store::Inner;
use crate::topology::Topology;
use crate::turn::Manner;

/// Changes a script's text.
type Edit = Arc<dyn Fn(&str) -> String + Send + Sync>;

/// Sets up a [`RedisStore`].
#[must_use]
pub struct RedisStoreBuilder {
    url: String,
    cache: Option<CacheOptions>,
    clock: Arc<dyn Clock>,
    patience: Patience,
    durability: Durability,
    sentinel_login: Option<(Option<String>, String)>,
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
            durability: Durability::Primary,
            sentinel_login: None,
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

    /// What a claim and a completion wait for besides the primary's own answer.
    ///
    /// A claim that too few replicas have in time is given back and refused as not applied. A completion stands
    /// whatever the replicas say, since the handler has run: it is counted ([`RedisStore::counts`]) and warned of.
    /// Renewals and releases do not wait. The wait holds up the connection, and with it all calls for the same server:
    /// up to `timeout` per trip where replicas are slow. Keep it well below a tenth of the leases.
    ///
    /// # Default
    /// [`Durability::Primary`]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Who we are to the sentinels of `redis+sentinel://`; the user and the password in the URL are for the servers.
    ///
    /// # Default
    /// Nobody in particular
    pub fn sentinel_credentials(mut self, user: Option<&str>, password: &str) -> Self {
        self.sentinel_login = Some((user.map(str::to_owned), password.to_owned()));
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
        let place = Place::of(&self.url)?;
        let counters = Arc::new(Counters::default());
        let hub = Arc::new(Hub::new(Cache::new(self.cache, self.clock.clone())));
        let patience = Patience { response: self.patience.response + self.durability.patience(), ..self.patience };
        let manner = self.manner(matches!(place, Place::Cluster { .. }));
        let topology = match place {
            Place::Single(info) => {
                let link = Link::new(Box::new(Single { client: access::client(*info)? }), patience, hub.clone());
                Topology::One(Lane::new(link, manner))
            }
            Place::Sentinel { sentinels, name, servers } => {
                let login = self.sentinel_login(servers.tls);
                let target = Sentinels::new(sentinels, name, login, servers, patience.connect);
                Topology::Named(Lane::new(Link::new(Box::new(target), patience, hub.clone()), manner))
            }
            Place::Cluster { seeds, nodes } => {
                let maker = Maker { access: nodes, patience, hub: hub.clone(), manner };
                Topology::Cluster(Arc::new(Cluster::connect(maker, seeds, counters.clone()).await?))
            }
        };
        for lane in topology.lanes(false).await? {
            lane.link().one(&redis::cmd("PING")).await?;
            // What cannot be done at all is not found out by the first claim.
            if let Some(wait) = self.durability.on_disk() {
                let why = "Durability::Disk needs Redis 7.2 and an append-only file (appendonly yes)";
                lane.link().one(&wait).await.map_err(|failure| failure.because(why))?;
            }
        }
        Ok(RedisStore(Arc::new(Inner { topology, hub, durability: self.durability, counters })))
    }

    fn manner(&self, is_cluster: bool) -> Manner {
        let dialect = if self.plain { Dialect::Plain } else { Dialect::Flags };
        let edit = self.edit.clone().unwrap_or_else(|| Arc::new(str::to_owned));
        // Keys of one node lie in several slots, which no script may name together.
        Manner { scripts: Scripts::new(dialect, |text| edit(text)), joins: !is_cluster, durability: self.durability }
    }

    fn sentinel_login(&self, tls: bool) -> Access {
        let mut login = RedisConnectionInfo::default();
        if let Some((user, password)) = &self.sentinel_login {
            login = login.set_password(password);
            if let Some(user) = user {
                login = login.set_username(user);
            }
        }
        Access { tls, login }
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

#[async_trait]
impl Target for Single {
    async fn client(&self) -> Result<redis::Client, Failure> {
        Ok(self.client.clone())
    }

    fn name(&self) -> String {
        self.client.get_connection_info().addr().to_string()
    }
}
