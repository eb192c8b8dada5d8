//! An MQTT server: mosquitto.
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::Command;
use std::time::Duration;

use super::daemon::{Daemon, Kind, Place};
use super::or_panic;

/// A private mosquitto that keeps sessions in memory. Dropping the value stops the process and removes its folder.
pub type MosquittoServer = Daemon<Mqtt>;

/// The settings of a server. There are none.
#[derive(Debug)]
pub struct Mqtt;

impl Daemon<Mqtt> {
    /// Starts a server without users and without TLS.
    ///
    /// # Panics
    /// If the server cannot start.
    #[must_use]
    pub fn start() -> Self {
        or_panic(Self::of(Mqtt, "mosquitto"))
    }

    /// Returns the URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("mqtt://{}", self.address())
    }

    /// Publishes a message with quality of service 1, and waits until the server has it.
    ///
    /// # Panics
    /// If the server does not confirm it.
    pub fn publish(&self, topic: &str, body: &str) {
        let place = format!("{}/{topic}", self.url());
        let sent = Command::new("mosquitto_pub").args(["-L", &place, "-q", "1", "-m", body]).status();
        assert!(sent.is_ok_and(|status| status.success()), "publishing to {topic}");
    }
}

impl Kind for Mqtt {
    const NAME: &'static str = "mosquitto";
    const USERS: [&'static str; 2] = ["mosquitto", "nobody"];
    const FAST: &'static str = "KILL";
    const VARIABLES: &'static str = "MOSQUITTO";
    const TAKEN: &'static str = "Address already in use";

    fn init(&self, _: &Place) -> Result<(), String> {
        Ok(())
    }

    fn server(&self, place: &Place, port: u16) -> Command {
        let mut command = place.command::<Self>("mosquitto");
        // Without a configuration, mosquitto listens on the loopback only, and accepts clients without a password.
        command.args(["-p", &port.to_string()]);
        command
    }

    /// Connects by MQTT 3.1.1, with a new session for a client without a name.
    fn greets(port: u16) -> bool {
        let Ok(mut connection) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { return false };
        let limit = connection.set_read_timeout(Some(Duration::from_secs(5)));
        if limit.is_err() || connection.write_all(b"\x10\x0c\0\x04MQTT\x04\x02\0\x3c\0\0").is_err() {
            return false;
        }
        let mut answer = [0; 4];
        connection.read_exact(&mut answer).is_ok() && answer == [0x20, 2, 0, 0]
    }
}
