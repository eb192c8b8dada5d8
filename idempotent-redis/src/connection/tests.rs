//! Reopening of a connection.
use idempotent_harness::servers::RedisServer;

use super::*;

#[derive(Debug)]
struct To(String);

#[async_trait]
impl ConnectTarget for To {
    async fn client(&self) -> Result<redis::Client, CallFailure> {
        let info = redis::IntoConnectionInfo::into_connection_info(&*self.0).unwrap();
        let settings = info.redis_settings().clone().set_protocol(redis::ProtocolVersion::RESP3);
        Ok(redis::Client::open(info.set_redis_settings(settings)).unwrap())
    }

    fn name(&self) -> String {
        self.0.clone()
    }
}

#[tokio::test]
async fn only_the_first_of_several_failures_closes_a_connection() {
    let server = RedisServer::start();
    let hub =
        NotificationHub::new(crate::cache::ConsumedCache::new(None, Arc::new(idempotent_core::SystemClock::new())));
    let second = Duration::from_secs(10);
    let timeouts = ConnectionTimeouts { connect: second, response: second };
    let connection = Connection::new(Box::new(To(server.url())), timeouts, Arc::new(hub));
    let ping = Cmd::new().arg("PING").clone();
    connection.send(&ping).await.unwrap();
    let failed_over = connection.number();
    for _ in 0..3 {
        connection.reconnect(failed_over);
        connection.send(&ping).await.unwrap();
    }
    assert_eq!((failed_over, connection.number()), (1, 2));
}
