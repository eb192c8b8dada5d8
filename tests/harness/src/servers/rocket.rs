//! A RocketMQ server: a name server and a broker.
mod config;
mod request;

use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use self::config::{BROKER, NAME_SERVER, Options, Ports};
use self::request::{Ask, CONSUMED, PUBLISHED, ROUTE, STATISTICS};
use super::files::Folder;
use super::port::{self, Reserved};
use super::process::Process;
use super::tls::Certificates;
use super::{or_panic, until};

/// The environment variable that names the folder with `rocketmq-namesrv-rust` and `rocketmq-broker-rust`, in place of
/// `brokers/bin` in the target folder, where `cargo xtask setup --brokers` puts them.
pub const ROCKETMQ_BIN: &str = "IDEMPOTENT_ROCKETMQ_BIN";

/// The number of tries: another program may take a port that was free, and a broker that cannot start in time gives up.
const TRIES: usize = 5;
/// The number of queues of a topic that are inspected.
const MOST_QUEUES: u16 = 16;
/// The distance of the broker's second port, for its own clients, below the first.
const FAST: u16 = 2;

/// A private name server and broker with their own folder. They start within a second or two, and later on a busy
/// machine, so a test binary shares one, with topics and groups for each test. Topics and groups are created on first
/// use. Dropping the value stops both and removes the folder.
///
/// The broker accepts no messages, and does not start, if the disk with its folder is nine tenths full; this limit
/// cannot be set. If the system's folder for temporary files is on such a disk, the folder of the broker is in memory
/// (`/dev/shm`).
///
/// Stored messages survive [`restart`](Self::restart). They also survive [`kill`](Self::kill), except those that were
/// not flushed to disk.
#[derive(Debug)]
pub struct RocketServer {
    // The fields are dropped in this order: a broker must not outlive its name server, and neither may outlive the
    // folder.
    broker: Mutex<Process>,
    _name_server: Process,
    ports: Ports,
    _reserved: [Reserved; 3],
    bin: PathBuf,
    folder: Folder,
}

/// Returns a folder in which a broker starts.
fn place() -> &'static Path {
    static PLACE: LazyLock<PathBuf> = LazyLock::new(|| {
        let (usual, memory) = (std::env::temp_dir(), Path::new("/dev/shm"));
        if is_nearly_full(&usual) && memory.is_dir() { memory.to_owned() } else { usual }
    });
    &PLACE
}

/// Returns whether the disk is nearly full as the broker sees it, with some margin. Space that is reserved for root
/// counts as used.
fn is_nearly_full(folder: &Path) -> bool {
    let told = Command::new("df").arg("-Pk").arg(folder).output().map(|output| output.stdout).unwrap_or_default();
    let told = String::from_utf8_lossy(&told);
    let number = |at: usize| told.lines().last()?.split_whitespace().nth(at)?.parse::<u64>().ok();
    number(1).zip(number(3)).is_some_and(|(all, free)| free < all / 8)
}

impl RocketServer {
    /// Starts a broker with the default delays. It accepts messages when this method returns.
    ///
    /// # Panics
    /// If the broker cannot start. The message shows what to install.
    #[must_use]
    pub fn start() -> Self {
        or_panic(Self::new(&Options::default()))
    }

    /// Starts a broker with these delays, in the format of the broker's setting.
    ///
    /// # Panics
    /// If the broker cannot start. The message shows what to install.
    #[must_use]
    pub fn with_delays(levels: &str) -> Self {
        or_panic(Self::new(&Options { levels: levels.to_owned(), ..Options::default() }))
    }

    /// Starts a broker that does not create topics on the first message, as brokers are configured to detect misspelt
    /// names. It has the topics that every broker has, such as `BenchmarkTest`.
    ///
    /// # Panics
    /// If the broker cannot start. The message shows what to install.
    #[must_use]
    pub fn that_makes_no_topics() -> Self {
        or_panic(Self::new(&Options { makes_topics: false, ..Options::default() }))
    }

    /// Starts a broker that directs its clients to this loopback address, at the port of [`address`](Self::address). A
    /// [proxy](crate::proxy) must listen there.
    ///
    /// # Panics
    /// If the broker cannot start. The message shows what to install.
    #[must_use]
    pub fn behind(told: Ipv4Addr, levels: &str) -> Self {
        or_panic(Self::new(&Options { levels: levels.to_owned(), told, ..Options::default() }))
    }

    /// Starts a broker that only accepts requests signed with these keys. The name server accepts all requests.
    ///
    /// # Panics
    /// If the broker cannot start. The message shows what to install.
    #[must_use]
    pub fn with_credentials(access_key: &str, secret_key: &str) -> Self {
        let credentials = Some([access_key.to_owned(), secret_key.to_owned()]);
        or_panic(Self::new(&Options { credentials, ..Options::default() }))
    }

    /// Starts a name server and a broker that accept TLS, with the [certificates](Self::certificates), and plain
    /// connections.
    ///
    /// # Panics
    /// If the broker cannot start. The message shows what to install.
    #[must_use]
    pub fn with_tls() -> Self {
        or_panic(Self::new(&Options { tls: true, ..Options::default() }))
    }

    /// Returns the certificates of a server that was started [with TLS](Self::with_tls).
    pub fn certificates(&self) -> Certificates {
        Certificates::of(self.folder.path())
    }

    fn new(options: &Options) -> Result<Self, String> {
        let bin = bin()?;
        let folder = Folder::new_in(place(), "rocketmq")?;
        if options.tls {
            Certificates::make(folder.path())?;
        }
        let mut why = "no port is free".to_owned();
        for _ in 0..TRIES {
            let reserved = [port::free(false)?, port::free(false)?, port::free(false)?];
            let [names, broker, replicas] = reserved.each_ref().map(|reserved| reserved.number);
            let ports = Ports { names, broker, replicas, makes_topics: options.makes_topics };
            if port::is_taken(ports.broker - FAST) {
                continue;
            }
            ports.configure(&folder, options).map_err(|e| format!("no configuration: {e}"))?;
            let mut names = Process::start(ports.name_server(&folder, &bin), folder.path(), &folder.file("names.log"))?;
            let mut broker = match listening(&mut names, ports.names) {
                Ok(()) => Process::start(ports.broker(&folder, &bin), folder.path(), &folder.log())?,
                // Another program has taken the port.
                Err(_) if names.ended().is_some() => continue,
                Err(why) => return Err(why),
            };
            match ready(&mut broker, 0, ports, &folder) {
                Ok(()) => {
                    return Ok(Self {
                        broker: Mutex::new(broker),
                        _name_server: names,
                        ports,
                        _reserved: reserved,
                        bin,
                        folder,
                    });
                }
                // Another program has taken a port, or the machine was too busy: the broker allows itself little time
                // to start.
                Err(last) => why = last,
            }
            drop(names);
            for left in ["store", "log"] {
                let _ = fs::remove_dir_all(folder.file(left)).or_else(|_| fs::remove_file(folder.file(left)));
            }
        }
        Err(why)
    }

    /// Returns the address of the name server: `127.0.0.1:PORT`.
    pub fn name_server(&self) -> String {
        format!("127.0.0.1:{}", self.ports.names)
    }

    /// Returns the URL of the name server.
    pub fn url(&self) -> String {
        format!("rocketmq://{}", self.name_server())
    }

    /// Returns the address of the broker: `127.0.0.1:PORT`, which stays the same after a restart.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.ports.broker)
    }

    /// Returns the number of messages that were published to a topic.
    ///
    /// # Panics
    /// If the broker does not answer.
    pub fn published(&self, topic: &str) -> u64 {
        or_panic((0..MOST_QUEUES).map(|queue| self.offset(PUBLISHED, topic, "", queue)).sum())
    }

    /// Returns the number of messages of a topic that this group has not acknowledged, as far as the broker knows.
    /// Clients report every second.
    ///
    /// # Panics
    /// If the broker does not answer.
    pub fn backlog(&self, topic: &str, group: &str) -> u64 {
        or_panic((0..MOST_QUEUES).map(|queue| self.waiting(topic, group, queue)).sum())
    }

    /// Returns the offset that this group has committed in the first queue of a topic, or 0 if there is none.
    ///
    /// # Panics
    /// If the broker does not answer.
    pub fn committed(&self, topic: &str, group: &str) -> u64 {
        or_panic(self.offset(CONSUMED, topic, group, 0))
    }

    fn waiting(&self, topic: &str, group: &str, queue: u16) -> Result<u64, String> {
        let published = self.offset(PUBLISHED, topic, group, queue)?;
        Ok(published.saturating_sub(self.offset(CONSUMED, topic, group, queue)?))
    }

    fn offset(&self, code: u16, topic: &str, group: &str, queue: u16) -> Result<u64, String> {
        let queue = queue.to_string();
        let place = [("topic", topic), ("queueId", &queue), ("consumerGroup", group)];
        Ok(Ask(self.ports.broker).of(code, &place)?.number("offset").unwrap_or(0))
    }

    /// Returns the number of messages of all topics that wait for the delay of this level.
    ///
    /// # Panics
    /// If the broker does not answer.
    pub fn delayed(&self, level: u32) -> u64 {
        let answer = or_panic(Ask(self.ports.broker).of(STATISTICS, &[]));
        // For each level: the numbers of delivered and of received messages.
        let waiting = |counts: &str| {
            let (over, came) = counts.split_once(',')?;
            Some(came.trim().parse::<u64>().ok()?.saturating_sub(over.trim().parse().ok()?))
        };
        answer.text(&format!("scheduleMessageOffset_{level}")).as_deref().and_then(waiting).unwrap_or(0)
    }

    /// Returns the process id of the broker, which [`restart`](Self::restart) changes.
    pub fn pid(&self) -> u32 {
        self.running().pid()
    }

    /// Returns whether the process of the broker exists, paused or not.
    pub fn is_running(&self) -> bool {
        self.running().ended().is_none()
    }

    /// Stops the broker (SIGSTOP): connections stay open, but nothing is answered.
    ///
    /// # Panics
    /// If the process does not stop.
    pub fn pause(&self) {
        or_panic(self.running().pause());
    }

    /// Continues a paused broker (SIGCONT).
    ///
    /// # Panics
    /// If the process does not continue.
    pub fn resume(&self) {
        or_panic(self.running().resume());
    }

    /// Kills the broker (SIGKILL). It stays down until [`restart`](Self::restart).
    pub fn kill(&self) {
        self.running().kill();
    }

    /// Stops the broker (SIGTERM, then SIGKILL) if it runs, and starts it with the same ports and folder.
    ///
    /// # Panics
    /// If the broker does not start.
    pub fn restart(&self) {
        let mut broker = self.running();
        broker.stop();
        or_panic(self.again(&mut broker));
    }

    fn again(&self, broker: &mut Process) -> Result<(), String> {
        let before = starts(&self.folder);
        *broker = Process::start(self.ports.broker(&self.folder, &self.bin), self.folder.path(), &self.folder.log())?;
        ready(broker, before, self.ports, &self.folder)
    }

    fn running(&self) -> MutexGuard<'_, Process> {
        self.broker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the folder next to the tests, wherever they were built.
fn bin() -> Result<PathBuf, String> {
    let has_both = |bin: &PathBuf| [NAME_SERVER, BROKER].iter().all(|name| bin.join(name).is_file());
    if let Some(named) = std::env::var_os(ROCKETMQ_BIN).map(PathBuf::from) {
        let text = format!("{ROCKETMQ_BIN} names {}, which has no {NAME_SERVER} and {BROKER}", named.display());
        return Some(named).filter(has_both).ok_or(text);
    }
    let test = std::env::current_exe().map_err(|e| e.to_string())?;
    let beside = test.ancestors().map(|folder| folder.join("brokers/bin")).find(has_both);
    beside.ok_or_else(|| {
        "no RocketMQ: `cargo xtask setup --brokers` builds a name server and a broker into the target folder".to_owned()
    })
}

fn listening(process: &mut Process, port: u16) -> Result<(), String> {
    let mut ended = false;
    until("the name server takes connections", || {
        ended = process.ended().is_some();
        ended || TcpStream::connect(("127.0.0.1", port)).is_ok()
    })?;
    if ended { Err("the name server ended at once".to_owned()) } else { Ok(()) }
}

/// Waits until the broker has reported one more start than `before`, and the name server knows it. A topic that is
/// created during the start makes the broker give up.
fn ready(broker: &mut Process, before: usize, ports: Ports, folder: &Folder) -> Result<(), String> {
    let mut ended = false;
    let done = until("RocketMQ takes connections", || {
        ended = broker.ended().is_some();
        ended || starts(folder) > before && knows_the_broker(ports)
    });
    match done {
        Ok(()) if !ended => Ok(()),
        Ok(()) => Err(format!("RocketMQ's broker ended at once:\n{}", folder.tail())),
        Err(why) => Err(format!("{why}:\n{}", folder.tail())),
    }
}

/// Returns how often the broker has started, by its log.
fn starts(folder: &Folder) -> usize {
    let log = fs::read(folder.log()).unwrap_or_default();
    String::from_utf8_lossy(&log).matches("started successfully").count()
}

/// Returns whether the name server knows the route of the broker's template topic, or, if there is none, of another
/// initial topic.
fn knows_the_broker(ports: Ports) -> bool {
    let topic = if ports.makes_topics { "TBW102" } else { "BenchmarkTest" };
    Ask(ports.names).of(ROUTE, &[("topic", topic)]).is_ok_and(|answer| answer.is_good())
}
