//! A RabbitMQ server.
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::files::Folder;
use super::port::{self, Reserved};
use super::process::Process;
use super::{Certificates, or_panic, until};

/// The environment variable that names the folder with `rabbitmq-server` and `rabbitmqctl`, in place of Debian's.
pub const RABBITMQ_SBIN: &str = "IDEMPOTENT_RABBITMQ_SBIN";

/// The folder of Debian's package, with a folder for its version. Its scripts on the `PATH` drop the environment when
/// root calls them, and thereby all private settings.
const DEBIAN: &str = "/usr/lib/rabbitmq/lib";

/// The file with the secret that nodes and tools share.
const COOKIE: &str = ".erlang.cookie";

/// The number of tries, since another program may take a port that was free.
const TRIES: usize = 20;

/// A private RabbitMQ server with its own node, port mapper and folder. It takes seconds to start, so a test binary
/// shares one, with a virtual host or a queue for each test. Dropping the value stops the server and removes its
/// folder.
///
/// Durable queues and persistent messages survive [`kill`](Self::kill) and [`restart`](Self::restart). A queue declared
/// just before may be lost with all its confirmed messages: see [`sync`](Self::sync).
#[derive(Debug)]
pub struct RabbitServer {
    // The fields are dropped in this order: a process must not outlive its folder, nor a node its port mapper.
    node: Mutex<Process>,
    mapper: Arc<PortMapper>,
    ports: Ports,
    _reserved: [Reserved; 3],
    sbin: PathBuf,
    folder: Folder,
}

/// The process through which the nodes of a cluster find each other. It ends with the last of them.
#[derive(Debug)]
struct PortMapper {
    _process: Process,
    reserved: Reserved,
}

#[derive(Clone, Copy, Debug)]
struct Ports {
    amqp: u16,
    distribution: u16,
    tls: u16,
    mapper: u16,
}

impl RabbitServer {
    /// Starts a server without plugins. It accepts connections when this method returns.
    ///
    /// # Panics
    /// If the server cannot start. The message shows what to install.
    #[must_use]
    pub fn start() -> Self {
        or_panic(Self::new(None))
    }

    /// Starts a server, which joins the cluster of the other one.
    pub(super) fn new(join: Option<&Self>) -> Result<Self, String> {
        let sbin = sbin()?;
        let folder = Folder::new("rabbitmq")?;
        if let Some(other) = join {
            let copied = fs::copy(other.folder.file(COOKIE), folder.file(COOKIE));
            copied.map_err(|e| format!("no cookie: {e}"))?;
        }
        for _ in 0..TRIES {
            let mapper = join.map_or_else(|| PortMapper::start(&folder), |other| Ok(other.mapper.clone()))?;
            let reserved = [port::free(false)?, port::free(false)?, port::free(false)?];
            let [amqp, distribution, tls] = reserved.each_ref().map(|reserved| reserved.number);
            let ports = Ports { amqp, distribution, tls, mapper: mapper.reserved.number };
            write_config(&folder, ports, join).map_err(|e| format!("no configuration: {e}"))?;
            let mut node = Process::start(ports.node(&folder, &sbin), folder.path(), &folder.log())?;
            match ready(&mut node, ports.amqp, &folder) {
                Ok(()) => {
                    let server = Self { node: Mutex::new(node), mapper, ports, _reserved: reserved, sbin, folder };
                    server.await_startup();
                    return Ok(server);
                }
                // Another program has taken a port. The log must not be read a second time.
                Err(why) if why.contains("eaddrinuse") => {
                    fs::remove_file(folder.log()).map_err(|e| e.to_string())?;
                }
                Err(why) => return Err(why),
            }
        }
        Err(format!("{TRIES} ports were free and then taken"))
    }

    /// Returns the name by which nodes know each other.
    pub(super) fn name(&self) -> String {
        self.ports.name()
    }

    /// Returns `amqp://guest:guest@127.0.0.1:PORT/%2f`.
    pub fn url(&self) -> String {
        self.url_of("/")
    }

    /// Returns the URL of a virtual host.
    pub fn url_of(&self, vhost: &str) -> String {
        format!("amqp://guest:guest@{}/{}", self.address(), vhost.replace('%', "%25").replace('/', "%2f"))
    }

    /// Returns `127.0.0.1:PORT`, which stays the same after a restart.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.ports.amqp)
    }

    /// Returns the process id, which [`restart`](Self::restart) changes.
    pub fn pid(&self) -> u32 {
        self.node().pid()
    }

    /// Returns whether the process exists, paused or not.
    pub fn is_running(&self) -> bool {
        self.node().ended().is_none()
    }

    /// Runs `rabbitmqctl` with these arguments on the node, which takes about a second. Returns the output.
    ///
    /// # Panics
    /// If the command fails.
    pub fn ctl(&self, arguments: &[&str]) -> String {
        let mut command = self.ports.tool(&self.folder, &self.sbin, "rabbitmqctl");
        let output = or_panic(command.arg("--quiet").args(arguments).output().map_err(|e| missing(&e)));
        let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "rabbitmqctl {arguments:?}: {stdout}{stderr}");
        stdout.into_owned()
    }

    /// Evaluates an Erlang expression in the node by `erl_call`, and returns its text. This takes a hundredth of the
    /// processor time of [`ctl`](Self::ctl), which starts an Erlang virtual machine.
    ///
    /// # Panics
    /// If the expression fails, or its result is not a string.
    pub fn eval(&self, expression: &str) -> String {
        static CALLS: AtomicU64 = AtomicU64::new(0);
        // A node refuses a second connection with the name of an existing one, and `-r` gives one name to concurrent
        // calls.
        let name = format!("call{}_{}", std::process::id(), CALLS.fetch_add(1, Ordering::Relaxed));
        let address = format!("localhost:{}", self.ports.distribution);
        let mut command = Command::new("erl_call");
        command.args(["-address", &address, "-c", &self.cookie(), "-h", &name, "-e"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = command.spawn().and_then(|mut child| {
            if let Some(mut stdin) = child.stdin.take() {
                // The end of a line also ends the expression.
                stdin.write_all(format!("{expression}\n").as_bytes())?;
            }
            child.wait_with_output()
        });
        let output = or_panic(output.map_err(|e| missing(&e)));
        let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let text = stdout.trim().strip_prefix("{ok, \"").and_then(|rest| rest.strip_suffix("\"}"));
        // An empty string is printed as an empty list.
        let empty = (stdout.trim() == "{ok, []}").then_some("");
        text.or(empty).unwrap_or_else(|| panic!("{expression}: {stdout}{stderr}")).to_owned()
    }

    /// Returns a count for each queue of a virtual host, such as `messages` or `consumers`, by the queue's name.
    ///
    /// # Panics
    /// If the node does not answer, or has no such count.
    pub fn queues(&self, vhost: &str, count: &str) -> BTreeMap<String, u64> {
        // A queue that is deleted in the meantime is left out.
        let rows = self.eval(&format!(
            "lists:flatten([[binary_to_list(element(4, amqqueue:get_name(Q))), $=, integer_to_list(N), $;] || \
             Q <- rabbit_amqqueue:list(<<\"{vhost}\">>), [{{_, N}}] <- [catch rabbit_amqqueue:info(Q, [{count}])]])."
        ));
        let row = |row: &str| row.rsplit_once('=').and_then(|(name, n)| Some((name.to_owned(), n.parse().ok()?)));
        rows.split_terminator(';').map(|text| row(text).unwrap_or_else(|| panic!("no count: {text}"))).collect()
    }

    /// Returns the secret that nodes and tools share.
    fn cookie(&self) -> String {
        or_panic(fs::read_to_string(self.folder.file(COOKIE)).map_err(|e| format!("no cookie: {e}")))
    }

    /// Returns the end of the log.
    pub fn log(&self) -> String {
        self.folder.tail()
    }

    /// Creates a virtual host of this name with all permissions for `guest`, the user of [`url`](Self::url).
    ///
    /// # Panics
    /// If the virtual host cannot be created, e.g. because it exists.
    pub fn add_vhost(&self, name: &str) {
        let all = "<<\".*\">>, <<\".*\">>, <<\".*\">>";
        self.eval(&format!(
            "ok = rabbit_vhost:add(<<\"{name}\">>, <<\"a test\">>), ok = rabbit_auth_backend_internal:set_permissions(\
             <<\"guest\">>, <<\"{name}\">>, {all}, <<\"a test\">>), \"done\"."
        ));
    }

    /// Listens on a second port, by TLS with a certificate of a new authority. Returns the host and the port.
    ///
    /// # Panics
    /// If the server does not listen, e.g. because it does so already.
    pub fn listen_by_tls(&self) -> (String, Certificates) {
        let certificates = or_panic(Certificates::make(self.folder.path()));
        let [certificate, key] = [certificates.server_certificate(), certificates.server_key()];
        let port = self.ports.tls;
        self.eval(&format!(
            "rabbit_networking:ensure_ssl(), ok = rabbit_networking:start_ssl_listener({{\"127.0.0.1\", {port}}}, \
             [{{certfile, {certificate:?}}}, {{keyfile, {key:?}}}], 1), \"done\"."
        ));
        (format!("127.0.0.1:{port}"), certificates)
    }

    /// Cuts every connection from the server's side.
    ///
    /// # Panics
    /// If the server does not execute the order.
    pub fn close_all_connections(&self) {
        // A connection may end by itself at the same time.
        self.eval(
            "[catch rabbit_networking:close_connection(P, \"cut by a test\") || P <- rabbit_networking:local_connections()], \
             \"done\".",
        );
    }

    /// Stops the node (SIGSTOP): connections stay open, but nothing is answered.
    ///
    /// # Panics
    /// If the process does not stop.
    pub fn pause(&self) {
        or_panic(self.node().pause());
    }

    /// Continues a paused node (SIGCONT).
    ///
    /// # Panics
    /// If the process does not continue.
    pub fn resume(&self) {
        or_panic(self.node().resume());
    }

    /// Makes the node write its queues, exchanges and virtual hosts to its disk. RabbitMQ 3 sometimes buffers them for
    /// a moment, and a kill loses the buffer: a test that killed the node right after it had declared a queue, and had
    /// a message confirmed in it, lost both in one of eight runs. RabbitMQ 4 with Khepri has no such buffer.
    ///
    /// # Panics
    /// If the node does not do it, e.g. because it is paused.
    pub fn sync(&self) {
        self.eval("case catch rabbit_khepri:is_enabled() of true -> ok; _ -> ok = mnesia:sync_log() end, \"done\".");
    }

    /// Kills the node (SIGKILL). It stays down until [`restart`](Self::restart).
    pub fn kill(&self) {
        self.node().kill();
    }

    /// Stops the node (SIGTERM, then SIGKILL) if it runs, and starts it with the same ports and folder.
    ///
    /// # Panics
    /// If the node does not start.
    pub fn restart(&self) {
        let mut node = self.node();
        node.stop();
        or_panic(self.again(&mut node));
        self.await_startup();
    }

    /// Waits until the node counts as running. RabbitMQ 4.3 takes connections a moment earlier, and then deletes a
    /// classic queue without a cancellation for its consumers.
    fn await_startup(&self) {
        self.eval("ok = rabbit:await_startup(), \"done\".");
    }

    fn again(&self, node: &mut Process) -> Result<(), String> {
        *node = Process::start(self.ports.node(&self.folder, &self.sbin), self.folder.path(), &self.folder.log())?;
        ready(node, self.ports.amqp, &self.folder)
    }

    fn node(&self) -> MutexGuard<'_, Process> {
        self.node.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PortMapper {
    /// Starts the port mapper in the foreground before the first node, which would otherwise start one that outlives
    /// it.
    fn start(folder: &Folder) -> Result<Arc<Self>, String> {
        let reserved = port::free(false)?;
        let mut command = Command::new("epmd");
        command.args(["-address", "127.0.0.1", "-port", &reserved.number.to_string()]);
        let process = Process::start(command, folder.path(), &folder.file("epmd.log"))?;
        Ok(Arc::new(Self { _process: process, reserved }))
    }
}

impl Ports {
    fn name(self) -> String {
        format!("idempotent{}@localhost", self.amqp)
    }

    fn node(self, folder: &Folder, sbin: &Path) -> Command {
        let mut command = self.tool(folder, sbin, "rabbitmq-server");
        // With this setting, the script becomes the node, so that the started process is the one to stop.
        command.env("RUNNING_UNDER_SYSTEMD", "true");
        command.env("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1");
        command.env("RABBITMQ_NODE_PORT", self.amqp.to_string());
        command.env("RABBITMQ_DIST_PORT", self.distribution.to_string());
        command.env("RABBITMQ_CONFIG_FILE", folder.file("rabbitmq"));
        command.env("RABBITMQ_ENABLED_PLUGINS_FILE", folder.file("enabled_plugins"));
        command.env("RABBITMQ_MNESIA_BASE", folder.file("mnesia"));
        command.env("RABBITMQ_LOGS", "-");
        // Two schedulers that do not spin, because several nodes share one small machine. Quorum queues are counted every 250 ms
        // (default 5 s), so that `list_queues` is up to date. A dead letter that could not be routed, such as to a queue that is
        // still recovering, is published again after 2 s (default 3 minutes).
        let arguments = "-kernel inet_dist_use_interface {127,0,0,1} +S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none \
                         -rabbit quorum_tick_interval 250 \
                         -rabbit dead_letter_worker_publisher_confirm_timeout 2000";
        command.env("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", arguments);
        command
    }

    /// Returns a script of the package without the settings of the system's own node.
    fn tool(self, folder: &Folder, sbin: &Path, name: &str) -> Command {
        let mut command = Command::new(sbin.join(name));
        command.env("HOME", folder.path()).env("ERL_CRASH_DUMP", folder.file("erl_crash.dump"));
        command.env("RABBITMQ_CONF_ENV_FILE", "/dev/null");
        command.env("RABBITMQ_NODENAME", self.name());
        command.env("ERL_EPMD_PORT", self.mapper.to_string());
        command.env("ERL_EPMD_ADDRESS", "127.0.0.1");
        command
    }
}

fn write_config(folder: &Folder, ports: Ports, join: Option<&RabbitServer>) -> std::io::Result<()> {
    fs::write(folder.file("enabled_plugins"), "[].\n")?;
    // The node must not watch the memory and disk of the machine.
    let mut config =
        "loopback_users = none\ndisk_free_limit.absolute = 50MB\nvm_memory_high_watermark.absolute = 512MB\n"
            .to_owned();
    if let Some(other) = join {
        // A node that is not itself in the list refuses to join.
        for (number, name) in [other.name(), ports.name()].iter().enumerate() {
            config += &format!("cluster_formation.classic_config.nodes.{} = {name}\n", number + 1);
        }
    }
    fs::write(folder.file("rabbitmq.conf"), config)
}

/// Returns the folder of the newest installed version.
fn sbin() -> Result<PathBuf, String> {
    if let Some(named) = std::env::var_os(RABBITMQ_SBIN) {
        return Ok(named.into());
    }
    let versions = fs::read_dir(DEBIAN).map_err(|e| missing(&e))?;
    let folders = versions.flatten().map(|version| version.path().join("sbin"));
    folders.filter(|sbin| sbin.join("rabbitmq-server").is_file()).max().ok_or_else(|| missing(&not_found()))
}

fn not_found() -> std::io::Error {
    std::io::ErrorKind::NotFound.into()
}

fn missing(e: &std::io::Error) -> String {
    super::missing("rabbitmq-server", e)
}

/// Waits until the node speaks AMQP.
fn ready(node: &mut Process, port: u16, folder: &Folder) -> Result<(), String> {
    let mut ended = false;
    let done = until("RabbitMQ takes connections", || {
        ended = node.ended().is_some();
        ended || speaks(port).is_some_and(|first| first == 1)
    });
    match done {
        Ok(()) if !ended => Ok(()),
        Ok(()) => Err(format!("RabbitMQ ended at once:\n{}", folder.tail())),
        Err(why) => Err(format!("{why}:\n{}", folder.tail())),
    }
}

/// Returns the first byte of the answer to a client's greeting: 1 is the frame of a method.
fn speaks(port: u16) -> Option<u8> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    stream.write_all(b"AMQP\x00\x00\x09\x01").ok()?;
    let mut first = [0];
    stream.read_exact(&mut first).ok()?;
    Some(first[0])
}
