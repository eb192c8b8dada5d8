//! A server that is reached by its address.
use async_trait::async_trait;

use crate::connection::Target;
use crate::connection::client::Access;
use crate::connection::url::Server;
use crate::failure::Failure;

/// One server, by its address.
#[derive(Debug)]
pub(crate) struct Single {
    pub(crate) server: Server,
    pub(crate) access: Access,
}

#[async_trait]
impl Target for Single {
    async fn client(&self) -> Result<redis::Client, Failure> {
        match &self.server {
            Server::Tcp(address) => self.access.client(address),
            Server::Unix(path) => self.access.socket(path),
        }
    }

    fn name(&self) -> String {
        self.server.to_string()
    }
}
