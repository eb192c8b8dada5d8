//! The parts of a source URL. Passwords are never printed.
use anyhow::{anyhow, bail};
use url::Url;

const FORMS: &str = "rabbitmq://USER:PASSWORD@HOST:PORT/VHOST?queue=NAME, \
                     redis-streams://HOST:PORT/DB?stream=NAME&group=NAME, \
                     nats://HOST:PORT?stream=NAME&consumer=NAME, \
                     pgmq://USER:PASSWORD@HOST:PORT/DATABASE?queue=NAME, \
                     rocketmq://HOST:PORT?topic=NAME&group=NAME, \
                     kafka://USER:PASSWORD@HOST:PORT?topic=NAME&group=NAME or \
                     sqs://REGION?queue=NAME";

/// A URL, and what its query asks for.
#[derive(Debug)]
pub(crate) struct SourceUrl {
    url: Url,
    query: Vec<(String, String)>,
}

impl SourceUrl {
    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        let mut url = Url::parse(text).map_err(|error| {
            anyhow!("--source is no URL: {error}; it is {FORMS}, with %40 for a @ in a name or password")
        })?;
        if url.host_str().is_none_or(str::is_empty) {
            bail!("--source names no host: it is {FORMS}");
        }
        let query = url.query_pairs().into_owned().collect();
        url.set_query(None);
        Ok(Self { url, query })
    }

    pub(crate) fn scheme(&self) -> &str {
        self.url.scheme()
    }

    /// Removes a parameter from the query and returns its last value.
    pub(crate) fn take(&mut self, name: &str) -> Option<String> {
        let mut found = None;
        self.query.retain(|(key, value)| {
            key != name || {
                found = Some(value.clone());
                false
            }
        });
        found
    }

    /// The same of what has to be there.
    pub(crate) fn need(&mut self, name: &str, what: &str) -> anyhow::Result<String> {
        match self.take(name).filter(|value| !value.is_empty()) {
            Some(value) => Ok(value),
            None => bail!("--source {} names no {what}: add `?{name}=NAME`", self.shown()),
        }
    }

    /// Returns the URL for the client. Parameters that remain in the query are unknown.
    pub(crate) fn into_url(mut self, scheme: &str, known: &str) -> anyhow::Result<Url> {
        if let Some((name, _)) = self.query.first() {
            bail!("--source {}: `{name}` is not known; known are {known}", self.shown());
        }
        // Between schemes that the standard gives no meaning to.
        self.url.set_scheme(scheme).map_err(|()| anyhow!("--source: the scheme cannot be {scheme}"))?;
        Ok(self.url)
    }

    pub(crate) fn shown(&self) -> String {
        shown(&self.url)
    }
}

/// Returns the URL without user and password.
pub(crate) fn shown(url: &Url) -> String {
    let mut url = url.clone();
    // There is a host, so there may be both.
    let _ = (url.set_username(""), url.set_password(None));
    url.to_string()
}
