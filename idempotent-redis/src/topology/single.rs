//! A connection target with a fixed address.
use async_trait::async_trait;

use crate::connection::ConnectTarget;
use crate::connection::client::ClientFactory;
use crate::connection::url::ServerEndpoint;
use crate::failure::CallFailure;

/// A server with a fixed address.
#[derive(Debug)]
pub(crate) struct SingleServer {
    pub(crate) server: ServerEndpoint,
    pub(crate) access: ClientFactory,
}

#[async_trait]
impl ConnectTarget for SingleServer {
    async fn client(&self) -> Result<redis::Client, CallFailure> {
        match &self.server {
            ServerEndpoint::Tcp(address) => self.access.client(address),
            ServerEndpoint::Unix(path) => self.access.socket(path),
        }
    }

    fn name(&self) -> String {
        self.server.to_string()
    }
}
