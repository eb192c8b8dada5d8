//! The settings of a name server and a broker, and the commands that start them.
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;

use super::super::files::Folder;
use super::super::tls::Certificates;

/// The default delays of a broker.
const DELAYS: &str = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h";
pub(super) const NAME_SERVER: &str = "rocketmq-namesrv-rust";
pub(super) const BROKER: &str = "rocketmq-broker-rust";

#[derive(Clone, Copy, Debug)]
pub(super) struct Ports {
    pub(super) names: u16,
    pub(super) broker: u16,
    pub(super) replicas: u16,
    /// True if the broker creates a topic on the first message.
    pub(super) makes_topics: bool,
}

/// The settings of a broker.
pub(super) struct Options {
    /// The delays, in the format of the broker's setting.
    pub(super) levels: String,
    /// The address of the broker that clients get; the port is the broker's.
    pub(super) told: Ipv4Addr,
    /// True if the broker creates a topic on the first message.
    pub(super) makes_topics: bool,
    /// The access key and the secret key that the broker requires.
    pub(super) credentials: Option<[String; 2]>,
    pub(super) tls: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { levels: DELAYS.to_owned(), told: Ipv4Addr::LOCALHOST, makes_topics: true, credentials: None, tls: false }
    }
}

/// The size of a commit log file in bytes. The broker creates the first file with the first message. With its default
/// of 1 GiB, that message waited for 3 s on a busy machine.
const COMMIT_LOG: u32 = 64 << 20;

impl Ports {
    /// Writes the configuration files of the name server and the broker.
    pub(super) fn configure(self, folder: &Folder, options: &Options) -> std::io::Result<()> {
        let Self { names, broker, replicas, makes_topics } = self;
        let Options { levels, told, .. } = options;
        let store = folder.file("store");
        let store = store.display();
        let signed = options.authentication(folder);
        let [names_tls, broker_tls] = options.encryption(folder);
        fs::create_dir_all(folder.file("conf"))?;
        fs::write(folder.file("conf/names.toml"), names_tls)?;
        fs::write(
            folder.file("conf/broker.toml"),
            format!(
                "[broker]\nnamesrvAddr = \"127.0.0.1:{names}\"\nbrokerIp1 = \"{told}\"\nlistenPort = {broker}\n\
                 storePathRootDir = \"{store}\"\nautoCreateTopicEnable = {makes_topics}\n{signed}\n\
                 [broker.brokerServerConfig]\nbindAddress = \"127.0.0.1\"\n\n{broker_tls}\
                 [broker.brokerIdentity]\nbrokerName = \"broker-a\"\nbrokerClusterName = \"DefaultCluster\"\n\
                 brokerId = 0\n\n\
                 [store]\nstoreType = \"LocalFile\"\nbrokerRole = \"ASYNC_MASTER\"\nstorePathRootDir = \"{store}\"\n\
                 mappedFileSizeCommitLog = {COMMIT_LOG}\n\
                 haListenAddress = \"127.0.0.1\"\nhaListenPort = {replicas}\nmessageDelayLevel = \"{levels}\"\n"
            ),
        )
    }

    pub(super) fn name_server(self, folder: &Folder, bin: &Path) -> Command {
        let mut command = Self::tool(folder, bin, NAME_SERVER);
        command.arg("-c").arg(folder.file("conf/names.toml")).arg("--rocketmqHome").arg(folder.path());
        command.args(["--listenPort", &self.names.to_string(), "--bindAddress", "127.0.0.1"]);
        command
    }

    pub(super) fn broker(self, folder: &Folder, bin: &Path) -> Command {
        let mut command = Self::tool(folder, bin, BROKER);
        command.arg("-c").arg(folder.file("conf/broker.toml")).args(["-n", &format!("127.0.0.1:{}", self.names)]);
        command
    }

    fn tool(folder: &Folder, bin: &Path, name: &str) -> Command {
        let mut command = Command::new(bin.join(name));
        command.current_dir(folder.path()).env("HOME", folder.path()).env("ROCKETMQ_HOME", folder.path());
        // The broker listens only on the loopback interface, and therefore needs neither passwords nor certificates.
        command.env("ROCKETMQ_SECURITY_PROFILE", "development-insecure-loopback");
        command
    }
}

impl Options {
    /// Returns the broker's settings for signed requests.
    fn authentication(&self, folder: &Folder) -> String {
        let settings = |[access_key, secret_key]: &[String; 2]| {
            format!(
                "authenticationEnabled = true\nauthConfigPath = \"{}\"\n\
                 initAuthenticationUser = \"{access_key}:{secret_key}\"\n\
                 innerClientAuthenticationCredentials = \
                 '{{\"accessKey\":\"{access_key}\",\"secretKey\":\"{secret_key}\"}}'\n",
                folder.file("auth").display()
            )
        };
        self.credentials.as_ref().map(settings).unwrap_or_default()
    }

    /// Returns the settings of the name server and of the broker for TLS.
    fn encryption(&self, folder: &Folder) -> [String; 2] {
        if !self.tls {
            return [String::new(), String::new()];
        }
        let certificates = Certificates::of(folder.path());
        let (certificate, key) = (certificates.server_certificate(), certificates.server_key());
        let (certificate, key) = (certificate.display(), key.display());
        let names = format!(
            "tlsEnable = true\ntlsTestModeEnable = false\ntlsServerMode = \"permissive\"\n\
             tlsServerCertPath = \"{certificate}\"\ntlsServerKeyPath = \"{key}\"\n"
        );
        let broker = format!(
            "[broker.brokerServerConfig.tlsConfig]\nenable = true\ntestModeEnable = false\n\n\
             [broker.brokerServerConfig.tlsConfig.server]\nmode = \"permissive\"\n\
             certPath = \"{certificate}\"\nkeyPath = \"{key}\"\n\n"
        );
        [names, broker]
    }
}
